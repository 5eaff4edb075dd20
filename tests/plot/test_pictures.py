"""Pictures, by what is on them: texts, counts, marks; and where everything lies."""

import html
import io
import math
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import margmap as mm
from circuits import random_circuit, running_example
from margmap.network.network import Network
from margmap.plot.graph import LOOKS, Drawing, size_of
from margmap.plot.layered import _crossings, layered, layers_of
from margmap.plot.scene import Line, Shape, Text

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '</text><script>alert("x")</script>&$\x1b[31m'


def coins(variables, components):
    """A mixture of products of coins."""
    chances = np.random.default_rng(1).uniform(0.4, 0.6, (components, variables))
    names = [mm.Variable(i) for i in range(variables)]
    rows = [math.prod(map(mm.bernoulli, names, row)) for row in chances.tolist()]
    return mm.circuit_of(sum(row * (1 / components) for row in rows), names)


def chain_of_sums(variables):
    """A circuit with a scope for each number of last variables, two sums over each."""
    names = [mm.Variable(i) for i in range(variables)]
    pair = (names[-1][0], names[-1][1])
    for variable in reversed(names[:-1]):
        one, other = variable[0] * pair[0], variable[1] * pair[1]
        pair = (0.3 * one + 0.7 * other, 0.6 * one + 0.4 * other)
    return mm.circuit_of(0.5 * pair[0] + 0.5 * pair[1], names)


def asia():
    """A small Bayesian network: a disease, two symptoms, one of which has a second cause."""
    disease, smoke = mm.Variable("disease", 2, ("no", "yes")), mm.Variable("smoke", 2, ("no", "yes"))
    cough, spots = mm.Variable("cough", 3, ("none", "some", "much")), mm.Variable("spots")
    return Network(
        [disease, smoke, cough, spots],
        [
            ([0], [0.9, 0.1]),
            ([1], [0.6, 0.4]),
            ([0, 1, 2], [[[0.9, 0.08, 0.02], [0.5, 0.3, 0.2]], [[0.3, 0.4, 0.3], [0.1, 0.3, 0.6]]]),
            ([0, 3], [[0.95, 0.05], [0.4, 0.6]]),
        ],
    )


def check_picture(picture, words=()):
    """What every picture has: a title on it, a text alternative, the words, in SVG, PNG and HTML."""
    root = ElementTree.fromstring(picture.svg())
    texts = ["".join(element.itertext()) for element in root.iter() if element.tag in (f"{SVG}text", f"{SVG}tspan")]
    whole = " ".join(texts)
    assert picture.title in whole
    for word in words:
        assert word in whole, (word, texts)
    assert picture.description
    assert f"{picture.title}. " in html.unescape(picture._repr_html_())
    assert 'alt="' in picture._repr_html_()
    return texts


def check_drawing(picture):
    """Nodes do not lie over each other, and all is on the page."""
    scene = picture.scene
    boxes = [
        item for item in scene.items if isinstance(item, Shape) and item.look in LOOKS.values() and item.size[1] > 14.5
    ]
    for i, one in enumerate(boxes):
        for other in boxes[i + 1 :]:
            apart = [abs(one.middle[k] - other.middle[k]) >= (one.size[k] + other.size[k]) / 2 - 0.01 for k in (0, 1)]
            assert any(apart), (one, other)
    for item in scene.items:
        points = item.points if isinstance(item, Line) else [item.middle if isinstance(item, Shape) else item.place]
        for x, y in points:
            assert 0 <= x <= scene.width
            assert 0 <= y <= scene.height
    title, description = (ElementTree.fromstring(picture.svg()).find(f"{SVG}{tag}") for tag in ("title", "desc"))
    assert title.text == picture.title
    assert description.text


class TestCircuit:
    def test_every_node_and_weight_of_a_small_one(self):
        circuit = running_example()
        picture = mm.plot.circuit(circuit)
        texts = check_picture(picture, ["3 sums, 6 products, 10 leaves", "X2=1: 0.9"])
        check_drawing(picture)
        assert texts.count("+") == 3
        assert texts.count("×") == 6
        assert [texts.count(weight) for weight in ("0.6", "0.4", "0.7", "0.3", "0.8", "0.2")] == [1] * 6
        lines = [item for item in picture.scene.items if isinstance(item, Line)]
        assert len(lines) == circuit.num_edges

    def test_the_paper_s_figure(self):
        """Its Figure 1: X3 is summed out, the sum over X1 takes the maximum, and the answer is .378."""
        circuit = running_example()
        result = mm.marginal_map(circuit, ["X1", "X2"])
        picture = mm.plot.circuit(circuit, result)
        texts = check_picture(picture, ["Circuit for the query X1, X2", "used by the answer", "takes the maximum"])
        check_drawing(picture)
        assert texts.count("max") == 3
        assert {"X1=0", "X1=1", "X2=0", "X2=1"} <= set(texts)
        strong = {node.hint for node in picture.graph.nodes if node.strong}
        assert {"X1=1", "X2=1"} <= strong
        assert not {"X1=0", "X2=0"} & strong
        assert "X1=1, X2=1" in picture.description
        # The bound at an edge is no smaller than the best state that uses it.
        bounds = {(e.above, e.below): float(e.label) for e in picture.graph.edges}
        assert all(bounds[e.above, e.below] >= 0.378 - 1e-9 for e in picture.graph.edges if e.strong)
        assert min(bounds.values()) == pytest.approx(0.144)  # the state (0, 0) has no more

    def test_highlighted_is_what_is_not_zero_under_the_answer(self):
        for seed in range(8):
            circuit = random_circuit(np.random.default_rng(seed), variables=4, zeros=False)
            query = [name for i, name in enumerate(circuit.names) if i in circuit.mentioned][:3]
            result = mm.marginal_map(circuit, query)
            picture = mm.plot.circuit(circuit, result)
            if "summed up" in picture.title:
                continue
            check_drawing(picture)
            below = {e.below for e in picture.graph.edges if e.strong}
            leaves = {node.hint for n, node in enumerate(picture.graph.nodes) if node.look == "leaf" and n in below}
            assert leaves <= {f"{name}={value}" for name, value in result.state.items()}

    def test_evidence_and_a_query_without_an_answer(self):
        picture = mm.plot.circuit(running_example(), query=["X2"], evidence={"X1": 0})
        check_picture(picture, ["given X1=0", "0.336"])
        assert not any(node.strong for node in picture.graph.nodes)

    def test_a_large_one_is_summed_up_by_scope(self):
        circuit = chain_of_sums(16)
        picture = mm.plot.circuit(circuit)
        check_picture(picture, [f"{circuit.num_nodes} nodes, {circuit.num_edges} edges"])
        check_drawing(picture)
        scopes = {tuple(sorted(circuit.scopes.variables(n))) for n in range(circuit.num_nodes)}
        assert len(picture.graph.nodes) == len(scopes)
        wide = mm.plot.circuit(coins(60, 3))
        assert "61 scopes" in wide.graph.subtitle
        assert [node.hint for node in wide.graph.nodes] == [
            "1 scope of 60 variables: 1 sum, 3 products",
            "60 scopes of 1 variable: 180 leaves",
        ]

    def test_continuous_leaves_and_hostile_names(self, tmp_path):
        evil, height = mm.Variable(HOSTILE, 2, ("<b>", '"\n')), mm.Variable("height", 0)
        circuit = mm.circuit_of(
            0.5 * evil["<b>"] * mm.gaussian(height, 1.7, 0.1) + 0.5 * evil['"\n'] * mm.gaussian(height, 1.5, 0.2)
        )
        for picture in (mm.plot.circuit(circuit), mm.plot.circuit(circuit, mm.marginal_map(circuit, [HOSTILE]))):
            check_picture(picture)
            assert "<script>" not in picture.svg()
            assert "\x1b" not in picture.svg() + picture.dot() + picture._repr_html_()
            picture.save(tmp_path / "x.png")
        assert "height ~ N(1.7, 0.1)" in mm.plot.circuit(circuit).svg()

    def test_a_network_is_refused(self):
        with pytest.raises(mm.ModelError):
            mm.plot.circuit(asia())


class TestNetwork:
    def test_bars_evidence_and_answer(self):
        network, evidence = asia(), {"cough": "much"}
        result = mm.marginal_map(network, ["disease"], evidence)
        picture = mm.plot.network(network, result, evidence=evidence)
        chances = mm.posteriors(network, evidence)
        texts = check_picture(picture, ["Bayesian network of 4 variables", "observed", "asked for", "in percent"])
        check_drawing(picture)
        by_name = dict(zip(network.names, picture.graph.nodes, strict=True))
        assert by_name["cough"].look == "observed"
        assert [bar.label for bar in by_name["cough"].bars] == ["much"]
        assert by_name["disease"].look == "asked"
        for name in ("disease", "smoke", "spots"):
            for bar, (state, p) in zip(by_name[name].bars, chances[name].items(), strict=True):
                assert bar.label == str(state)
                assert bar.part == p
                assert bar.number in texts
                assert float(bar.number) == pytest.approx(100 * p, abs=0.0501)
                assert bar.marked == (name == "disease" and state == result.state["disease"])
        edges = {(e.above, e.below) for e in picture.graph.edges}
        assert edges == {(0, 2), (1, 2), (0, 3)}

    def test_uncertain_evidence_is_marked_with_what_is_left_of_it(self):
        picture = mm.plot.network(asia(), evidence={"cough": {"some", "much"}})
        check_picture(picture, ["observed", "given the evidence"])
        cough = picture.graph.nodes[2]
        assert cough.look == "observed"
        assert [bar.part > 0 for bar in cough.bars] == [False, True, True]
        assert "cough=uncertain" in picture.description

    def test_markov_networks_have_all_their_edges(self):
        variables = [mm.Variable(i) for i in range(6)]
        rng = np.random.default_rng(1)
        network = Network(variables, [([0, 1, 2], rng.random((2, 2, 2))), ([2, 3], rng.random((2, 2)))], "markov")
        picture = mm.plot.network(network)
        assert {frozenset((e.above, e.below)) for e in picture.graph.edges} == {
            frozenset(pair) for pair in ((0, 1), (0, 2), (1, 2), (2, 3))
        }
        check_drawing(picture)
        assert not picture.graph.arrows

    def test_of_a_large_one_the_part_around_the_question(self):
        length = 100
        variables = [mm.Variable(f"v{i}") for i in range(length)]
        tables = [([0], [0.5, 0.5]), *(([i - 1, i], [[0.9, 0.1], [0.2, 0.8]]) for i in range(1, length))]
        network = Network(variables, tables)
        picture = mm.plot.network(network, evidence={"v50": 1})
        check_picture(picture, ["60 of 100 variables", "nearest to the question"])
        assert len(picture.graph.nodes) == 60
        assert any(node.label == "v50" for node in picture.graph.nodes)
        assert not any(node.label == "v0" for node in picture.graph.nodes)

    def test_many_states_are_cut_and_the_answer_s_is_kept(self):
        many = mm.Variable("many", 12)
        network = Network([many], [([0], np.arange(1, 13) / 78)])
        bars = mm.plot.network(network, mm.marginal_map(network)).graph.nodes[0].bars
        assert [bar.label for bar in bars] == ["8", "9", "10", "11", "8 others"]
        assert sum(bar.part for bar in bars) == pytest.approx(1.0)
        assert [bar.marked for bar in bars] == [False, False, False, True, False]

    def test_without_posteriors_the_answer_is_in_the_label(self):
        picture = mm.plot.network(asia(), mm.marginal_map(asia(), ["spots"]), posteriors=False)
        assert "spots=0" in check_picture(picture)
        with pytest.raises(mm.ModelError, match=r"margmap\.plot\.circuit"):
            mm.plot.network(running_example())


class TestCharts:
    def test_the_best_states_as_a_heat_table(self):
        result = mm.marginal_map(running_example(), ["X1", "X2"], k=3)
        picture = mm.plot.answer(result)
        check_picture(picture, ["The 3 best states", "rank and p(q | e)", "query variable"])
        shown = [(text.get_text(), text.get_weight()) for text in picture.axes.texts]
        assert shown == [
            ("1", "normal"),
            ("0", "bold"),
            ("1", "normal"),
            ("1", "normal"),
            ("1", "normal"),
            ("0", "bold"),
        ]
        heat = picture.axes.images[0].get_array()
        total = 0.378 + 0.256 + 0.222
        assert heat[0].tolist() == pytest.approx([0.6 / total, 0.256 / total, 0.6 / total])
        assert [label.get_text() for label in picture.axes.get_yticklabels()] == ["X1", "X2"]
        assert picture.axes.get_xticklabels()[1].get_text() == "2.\n0.256"

    def test_what_differs_comes_first_where_there_is_much(self):
        variables = [mm.Variable(f"v{i}") for i in range(60)]
        formula = variables[59][0] * 0.4 + variables[59][1] * 0.6
        for variable in variables[:59]:
            formula = formula * (0.9 * variable[1] + 0.1 * variable[0])
        picture = mm.plot.answer(mm.marginal_map(mm.circuit_of(formula, variables), k=2))
        labels = [label.get_text() for label in picture.axes.get_yticklabels()]
        assert labels[0] == "v59"
        assert len(labels) == 40
        assert picture.axes.get_ylabel() == "query variable, 40 of 60 shown"

    @pytest.mark.parametrize("method", ["frontier", "iterative", "branch", "search", "brute"])
    def test_bounds_against_time_of_any_method(self, method):
        seen = []
        result = mm.marginal_map(coins(10, 4), method=method, on_progress=seen.append)
        picture = mm.plot.bounds(result)
        check_picture(picture, ["time (s)", "log p(q, e) (nats)", "upper bound", "best state", f"method {method}"])
        upper, lower = picture.axes.lines
        assert upper.get_ydata()[-1] == result.log_upper
        assert lower.get_ydata()[-1] == result.log_prob
        assert len(mm.plot.bounds(seen).axes.lines[0].get_xdata()) == len(seen) + 1
        assert upper.get_linestyle() != lower.get_linestyle()  # to be told apart without colours

    def test_methods_side_by_side(self):
        results = [mm.marginal_map(running_example(), method=m) for m in ("brute", "branch", "branch")]
        picture = mm.plot.compare(results)
        texts = check_picture(picture, ["3 answers to one question", "time (s)", "method"])
        assert {"brute", "branch", "branch (2)"} <= set(texts)
        assert len(picture.axes.figure.axes[1].patches) == 3
        named = mm.plot.compare({"mine": results[0]})
        assert [label.get_text() for label in named.axes.get_yticklabels()] == ["mine"]

    def test_what_cannot_be_drawn_says_so(self):
        stopped = mm.solve.result.without_state("time_limit", "auto", 1.0)
        with pytest.raises(mm.QueryError, match="no state to draw"):
            mm.plot.answer(stopped)
        with pytest.raises(mm.QueryError, match="no bounds to draw"):
            mm.plot.bounds([])
        with pytest.raises(mm.QueryError, match="nothing to compare"):
            mm.plot.compare([])
        assert math.isinf(stopped.log_prob)
        check_picture(mm.plot.compare({"stopped": stopped}))


class TestFiles:
    def test_every_kind_of_file(self, tmp_path):
        picture = mm.plot.circuit(running_example())
        for kind, start in (("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF"), ("dot", b"digraph")):
            picture.save(tmp_path / f"x.{kind}")
            assert (tmp_path / f"x.{kind}").read_bytes().startswith(start)
        with pytest.raises(mm.FormatError, match=r"'\.pngg': did you mean 'png'\? use \.svg, \.png, \.pdf, \.dot"):
            picture.save(tmp_path / "x.pngg")
        with pytest.raises(mm.FormatError, match=r"use \.svg, \.png, \.pdf"):
            mm.plot.bounds(mm.marginal_map(running_example())).save(tmp_path / "x.dot")

    def test_dot_has_the_whole_graph(self):
        picture = mm.plot.circuit(running_example())
        lines = picture.dot().splitlines()
        assert sum(" -> " in line for line in lines) == 18
        assert sum(line.startswith("  n") and "[label=" in line and "->" not in line for line in lines) == 19

    def test_svg_and_dot_need_no_matplotlib(self, monkeypatch):
        def none(_module):
            raise ImportError

        monkeypatch.setattr("margmap.plot.picture.import_module", none)
        picture = mm.plot.network(asia())
        assert picture.svg()
        assert picture.dot()
        with pytest.raises(mm.MissingExtraError, match=r"margmap\[plot\]"):
            picture._bytes("png")

    def test_on_axes_of_one_s_own(self):
        from matplotlib.figure import Figure

        axes = Figure().subplots()
        picture = mm.plot.circuit(running_example(), ax=axes)
        assert picture.axes is axes
        assert "Circuit over 3 variables" in [text.get_text() for text in axes.texts]
        axes.figure.savefig(io.BytesIO(), format="png")


class TestLayout:
    def test_edges_lead_down_and_nodes_keep_apart(self):
        rng = np.random.default_rng(0)
        for count in (1, 2, 5, 12, 30):
            edges = sorted({(int(a), int(b)) for a, b in rng.integers(0, count, (2 * count, 2)) if a < b})
            sizes = [(float(w), float(h)) for w, h in rng.uniform(10, 60, (count, 2))]
            found = layered(sizes, edges, (8.0, 20.0))
            for (a, b), way in zip(edges, found.edges, strict=True):
                assert found.nodes[a][1] < found.nodes[b][1]
                assert way[0] == found.nodes[a]
                assert way[-1] == found.nodes[b]
                assert [y for _, y in way] == sorted(y for _, y in way)
            layer = layers_of(count, edges)
            for i in range(count):
                for j in range(i):
                    if layer[i] == layer[j]:
                        room = (sizes[i][0] + sizes[j][0]) / 2 + 8
                        assert abs(found.nodes[i][0] - found.nodes[j][0]) >= room - 1e-6
                assert sizes[i][0] / 2 - 1e-6 <= found.nodes[i][0] <= found.width - sizes[i][0] / 2 + 1e-6

    def test_a_tree_has_no_crossings(self):
        edges = [((i - 1) // 2, i) for i in range(1, 15)]
        found = layered([(10.0, 10.0)] * 15, edges, (5.0, 5.0))
        layer = layers_of(15, edges)
        rows = [sorted((n for n in range(15) if layer[n] == k), key=lambda n: found.nodes[n][0]) for k in range(4)]
        assert _crossings(rows, [[b for a, b in edges if a == n] for n in range(15)]) == 0
        for parent in range(7):  # which stand between their children
            left, right = sorted(found.nodes[2 * parent + 1 + i][0] for i in (0, 1))
            assert left < found.nodes[parent][0] < right

    def test_boxes_have_room_for_their_words(self):
        """Estimated widths are no smaller than those that matplotlib draws."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        picture = mm.plot.network(asia(), posteriors=True)
        assert isinstance(picture, Drawing)
        axes = picture.axes
        renderer = FigureCanvasAgg(axes.figure).get_renderer()
        labels = {item.words for item in picture.scene.items if isinstance(item, Text)}
        widths = {t.get_text(): t.get_window_extent(renderer).width for t in axes.texts if t.get_text() in labels}
        scale = axes.get_window_extent(renderer).width / picture.scene.width
        for node in picture.graph.nodes:
            assert widths[node.label] <= size_of(node)[0] * scale

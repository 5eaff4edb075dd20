"""The lines on which soundness rests, each with a break that the tests must see; ``mutate.py`` breaks them one by one.

Whoever changes such a line changes it here too (a test sees to it), and whoever adds a bound, a drop, a merge, a
floor, a rounding or an early exit adds a break of it. A break is small on purpose: tests see coarse ones anyway.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    """A line on which soundness rests, and a break of it."""

    #: The file, below ``src/margmap``.
    file: str
    #: The text to replace. It occurs once in the file, or once behind ``after`` in the same function.
    old: str
    new: str
    #: What is broken, and why the answer can then be wrong.
    why: str
    #: Tests (ids of pytest, relative to the root) of which at least one must fail.
    tests: tuple[str, ...]
    #: A text that occurs once, such as the head of a function, behind which ``old`` is looked for.
    after: str = ""


TURNS = "tests/solve/test_auto.py::test_sweeps_pruning_and_search_take_turns"
NEAR = "tests/solve/test_near_ties.py::test_a_state_known_just_below_the_best"
ALIKE = "tests/solve/test_near_ties.py::test_states_that_are_all_alike"
GAP = "tests/solve/test_near_ties.py::test_a_gap_that_was_asked_for_is_no_smaller_than_it_says"
CORES = "tests/solve/test_near_ties.py::test_many_cores_and_a_state_known_just_below_the_best"
FACTORS = "tests/solve/test_near_ties.py::test_what_factors_may_lose_together"
THRESHOLD = "tests/solve/test_near_ties.py::test_a_search_finds_what_is_above_its_threshold"
LEFT = "tests/solve/test_near_ties.py::test_a_stopped_search_leaves_every_better_state"
LEFT_OF_MANY = "tests/solve/test_near_ties.py::test_a_stopped_search_for_the_k_best_bounds_the_others"
SWEEP = "tests/solve/test_near_ties.py::test_a_sweep_loses_nothing_above_its_bound"
RULES = "tests/solve/test_constraints.py::test_equals_enumeration"
APART = "tests/solve/test_constraints.py::test_only_the_constraints_tell_vectors_apart"
PRICES = "tests/solve/test_constraints.py::test_prices_take_nothing_from_a_state_that_satisfies_the_constraints"
ANSWERS_BEYOND = "tests/solve/test_near_ties.py::test_answers_beyond_doubles"
BEYOND = "tests/solve/test_near_ties.py::test_a_sweep_beyond_doubles"
WIDE = "tests/solve/test_near_ties.py::test_wide_frontiers"
PAIRS = "tests/solve/test_near_ties.py::test_joins_of_more_pairs_than_are_looked_at"
ROUNDING = "tests/solve/test_counted_rounding.py"
BOUNDS = "tests/solve/test_bounds.py::test_against_enumeration[0]"
TRANSFORM = "tests/solve/test_transform.py"
STOPPED_BRANCH = "tests/solve/test_branch.py::test_stopped_at_every_moment_the_bounds_hold"
STOPPED_FRONTIER = "tests/solve/test_frontier.py::test_stopped_at_every_moment_the_bounds_hold"
STOPPED_SEARCH = "tests/solve/test_search.py::test_stopped_at_every_node_the_bounds_hold"
STOPPED_CORES = "tests/solve/test_parallel.py::test_stopped_at_every_moment_the_bounds_hold"
STOPPED_KERNEL = "tests/solve/test_limits.py::test_stopped_inside_of_any_kernel_the_bounds_hold"
DEATHS = "tests/solve/test_parallel.py::test_dead_and_new_workers"
WIDTHS = "tests/solve/test_frontier.py::test_bounds_hold_under_any_width_limit"
TOP = "tests/solve/test_topk.py::test_equals_sorted_enumeration"
LAST_BIT = "tests/solve/test_topk.py::test_the_upper_bound_is_sound_to_the_last_bit"
REDUCE = "tests/solve/test_reduce.py"
SESSION = "tests/solve/test_session.py"
SOLVE = "tests/solve/test_marginal_map.py"
NETWORKS = "tests/network/test_compile.py"
NETWORK_TIES = f"{NETWORKS}::test_values_that_are_almost_as_good"
NETWORK_ROWS = f"{NETWORKS}::test_rows_are_one_node_only_if_they_are_equal"
NETWORK_WAYS = f"{NETWORKS}::test_marginal_map_agrees_with_enumeration_every_way"
NETWORK_LAST_BIT = f"{NETWORKS}::test_the_upper_bound_of_elimination_is_sound_to_the_last_bit"
PROOFS = "tests/certificate/test_certificate.py"
PROOF_BOUNDS = "tests/certificate/test_certificate_bounds.py"
FORGED = f"{PROOFS}::test_whatever_is_accepted_is_true"
UPPER = f"{PROOFS}::test_the_upper_circuit_is_close_above"
LINEAR = f"{PROOFS}::test_the_linear_bound_holds_in_every_block"
SAFE_SIDE = f"{PROOFS}::test_arithmetic_rounds_to_the_safe_side"


def _of(file: str, *breaks: tuple[str, str, str, str, tuple[str, ...]]) -> list[Mutation]:
    """Breaks of one file: where it is (a text before it, or nothing), old, new, why, tests."""
    return [Mutation(file, old, new, why, tests, after) for after, old, new, why, tests in breaks]


SWEEP_BREAKS = _of(
    "solve/methods/frontier/sweep.py",
    (
        "",
        "total[child[e]] += max(share[e] * total[n], SMALLEST)",
        "total[child[e]] = max(total[child[e]], share[e] * total[n], SMALLEST)",
        "outside bounds of a sum's children take the largest of their parents, not the sum",
        (f"{SWEEP}[dense]", f"{SWEEP}[latent tree]", f"{SWEEP}[laminar]"),
    ),
    (
        "def push(",
        "outside[factor[at + j]] += weight",
        "outside[factor[at + j]] = weight",
        "outside bounds of a part forget all products but the last",
        (f"{SWEEP}[dense]", f"{SWEEP}[structured]"),
    ),
    (
        "def push(",
        "weight = _product(weight, limit[factor[at + k]])",
        "weight = _product(weight, limit[factor[at + k]] ** 2)",
        "siblings that are done tighten the bound outside of a part twice",
        (f"{SWEEP}[dense]", f"{SWEEP}[coins]", f"{SWEEP}[laminar]", f"{SWEEP}[latent tree]"),
    ),
    (
        "",
        "if vector[i] * factor > kept[r, i] and used[i] != 0:",
        "if vector[i] * factor > 1.01 * kept[r, i] and used[i] != 0:",
        "a vector that is almost dominated is dropped",
        (f"{SWEEP}[dense]", f"{SWEEP}[coins]", f"{WIDE}[8-0.2]"),
    ),
    (
        "",
        "            if needed == 0:",
        "            if needed >= 0:",
        "for the k best, a vector is dropped as soon as one other dominates it",
        (f"{SWEEP}[structured]", f"{SWEEP}[coins]"),
    ),
    (
        "def _values(",
        "if score[k] <= floor:",
        "if score[k] <= 1.01 * floor:",
        "a value of a variable is dropped 0.01 nats above the floor",
        (f"{SWEEP}[structured]", f"{SWEEP}[few variables]", f"{SWEEP}[deterministic]"),
    ),
    (
        "def _values(",
        "surplus = np.maximum(surplus, vector)",
        "surplus = vector.copy()",
        "surplus values of a variable are merged into the last of them",
        (f"{SWEEP}[many values]", f"{SWEEP}[laminar, many values]", f"{SWEEP}[latent tree, many values]"),
    ),
    (
        "def _values(",
        "if merge and not _dominated(",
        "if merge and count == 0 and not _dominated(",
        "surplus values of a variable are forgotten",
        (f"{SWEEP}[many values]", f"{SWEEP}[coins]"),
    ),
    (
        "def _join(",
        "if merge and not _dominated(",
        "if merge and count == 0 and not _dominated(",
        "surplus vectors of a join are forgotten",
        (f"{SWEEP}[dense]", f"{SWEEP}[coins]"),
    ),
    (
        "def _join(",
        "surplus[i] = max(surplus[i], vector[i])",
        "surplus[i] = vector[i]",
        "surplus vectors of a join are merged into the last of them",
        (f"{SWEEP}[dense]", f"{SWEEP}[coins]", f"{SWEEP}[latent tree]"),
    ),
    (
        "def _join(",
        "count >= most or first_merged[a] != 0 or",
        "count >= most or",
        "what is joined with a merged vector passes for a state",
        (f"{SWEEP}[dense]", f"{SWEEP}[coins]"),
    ),
    (
        "def _join(",
        "count >= most or first_merged[a] != 0 or second_merged[b] != 0:",
        "count >= most or first_merged[a] != 0:",
        "what is joined with a merged vector of the second part passes for a state",
        (f"{SWEEP}[dense]", f"{SWEEP}[coins]"),
    ),
    (
        "def _join(",
        "used[i] = outside[n] > 0",
        "used[i] = outside[n] > 0.3",
        "entries with a small bound outside count for nothing in the comparison of vectors",
        (f"{SWEEP}[dense]", f"{SWEEP}[latent tree, peaked]", f"{SWEEP}[structured]", f"{SWEEP}[laminar]"),
    ),
    (
        "def _join(",
        "used[i] = weight[i] > 0",
        "used[i] = weight[i] > 0.3",
        "products with a small bound outside count for nothing while parts are joined",
        (f"{SWEEP}[dense]", f"{SWEEP}[coins]", f"{SWEEP}[laminar]", f"{WIDE}[12-0.4]"),
    ),
    (
        "def _join(",
        "for k in range(j + 2, parts):",
        "for k in range(j + 1, parts):",
        "the limit of the part that is joined is multiplied into the bound outside of it",
        (f"{SWEEP}[dense]", f"{SWEEP}[coins]", f"{WIDE}[8-0.2]"),
    ),
    (
        "def _join(",
        "if lost.size > 0:",
        "if lost.size < 0:",
        "pairs that were cut off because there are too many are ignored",
        (f"{SWEEP}[coins]", f"{SWEEP}[dense]", f"{WIDE}[8-0.2]"),
    ),
    (
        "def _join(",
        "for at in range(0, lost.shape[0], lanes):",
        "for at in range(lanes, lost.shape[0], lanes):",
        "of the pairs that were cut off, those of the best vectors do not count",
        (f"{WIDE}[8-0.2]", f"{WIDE}[5-0.05]", PAIRS),
    ),
    (
        "def _join(",
        "surplus[i] = max(surplus[i], value[entry_row[i], k])",
        "surplus[i] = value[entry_row[i], k]",
        "the pairs that were cut off are merged into the last of them",
        (f"{SWEEP}[coins]", f"{SWEEP}[dense]", f"{WIDE}[8-0.2]"),
    ),
    (
        "def _join(",
        "wider[:count] = kept[:count]",
        "wider[: count // 2] = kept[: count // 2]",
        "half of the vectors are lost when the set of those kept grows",
        (f"{WIDE}[8-0.2]", f"{WIDE}[5-0.05]"),
    ),
    (
        "def _score(",
        "                        left_out = True",
        "                        left_out = False",
        "the worse half of the pairs is dropped without a word",
        (f"{SWEEP}[coins]", f"{SWEEP}[dense]", f"{WIDE}[8-0.2]", PAIRS),
    ),
    (
        "def _score(",
        "reach[i] = max(reach[i], second[q, i])",
        "reach[i] = second[q, i]",
        "what a pair that was cut off can reach is taken from the last vector of the second part",
        (f"{SWEEP}[coins]", f"{SWEEP}[dense]", f"{WIDE}[8-0.2]"),
    ),
    (
        "def _score(",
        "mixed[r, column[p]] += weight[p] * first[begin + r, p]",
        "mixed[r, column[p]] = weight[p] * first[begin + r, p]",
        "the bound of a pair forgets products that share an entry",
        (f"{SWEEP}[dense]", f"{SWEEP}[laminar]", f"{SWEEP}[structured]"),
    ),
    (
        "def _score(",
        "bounds = row_products(mixed, second)",
        "bounds = row_products(mixed, second) * 0.999",
        "bounds of pairs are too small where they are a matrix product",
        (f"{WIDE}[8-0.2]", f"{WIDE}[12-0.4]"),
    ),
    (
        "def _score(",
        "bounds[r, q] = bound",
        "bounds[r, q] = 0.999 * bound",
        "bounds of pairs are too small where they are added up one by one",
        (f"{SWEEP}[coins]", f"{SWEEP}[dense]", f"{NEAR}[frontier]"),
    ),
    (
        "def go_up(",
        "highest = max(highest, kept[r, i])",
        "highest = kept[r, i]",
        "the limit of a node is that of the last vector, not the largest",
        (f"{SWEEP}[coins]", f"{SWEEP}[dense]"),
    ),
    (
        "def read_off(",
        "upper = max(upper, log_of(vectors[vector_at[root_scope] + r], exponent))",
        "upper = max(upper, log_floor)",
        "merged vectors that arrive at the root do not count in the bound",
        (f"{SWEEP}[coins]", f"{SWEEP}[dense]"),
    ),
    (
        "def go_up(",
        "floor = np.exp(min(log_floor - exponent * LN2 - away, 700.0))",
        "floor = np.exp(min(log_floor - away, 700.0))",
        "the floor does not move with the scale of the vectors",
        (f"{SWEEP}[coins]", f"{SWEEP}[dense]"),
    ),
)

FRONTIER_BREAKS = _of(
    "solve/methods/frontier/solve.py",
    (
        "",
        "if view is None or not found:",
        "if view is None:",
        "a circuit that is rewritten for its plan has the bounds in the place of its weights",
        ("tests/solve/test_threads.py::test_a_circuit_that_is_rewritten_for_its_plan_is_made_again",),
    ),
    (
        "",
        "while log_upper > (floor := max(floor, incumbents.floor)) + slack:",
        "while log_upper > (floor := max(floor, incumbents.best[1])) + slack:",
        "for the k best, sweeps look only for states that are better than all that are known",
        ("tests/solve/test_near_ties.py::test_the_k_best_are_complete[frontier]",),
    ),
    (
        "def after_sweep(",
        "return merged, min(log_upper, max(raised(upper, log_whole), least))",
        "return merged, min(log_upper, least)",
        "what was merged does not count in the bound",
        (f"{WIDTHS}[coins]", f"{WIDTHS}[latent tree]"),
    ),
    (
        "def prune(",
        "log_upper = min(log_upper, max(raised(tightest(relative, asked), log_whole), log_floor))",
        "log_upper = min(log_upper, log_floor)",
        "what pruning leaves does not count in the bound",
        (f"{TURNS}[coins]", f"{TURNS}[dense]", f"{WIDTHS}[coins]"),
    ),
    (
        "def prune(",
        "smaller, relative = search.prune(smaller, floor_of(log_floor, log_whole))",
        "smaller, relative = search.prune(smaller, 1.01 * floor_of(log_floor, log_whole))",
        "between sweeps, what is 0.01 nats above the incumbent is pruned",
        (f"{TURNS}[coins]", f"{TURNS}[dense]", f"{NEAR}[frontier]"),
    ),
    (
        "def take(",
        "return min(log_upper, self._search.log_upper)",
        "return min(log_upper, self._search.floor)",
        "what the search beside the sweeps has left does not count in the bound",
        (f"{TURNS}[coins]", f"{TURNS}[dense]"),
    ),
    (
        "",
        "return Outcome(best, raised(log_upper, rounding), status, details)",
        "return Outcome(best, log_upper, status, details)",
        "the frontier's own rounding is left out of its bound",
        (f"{ROUNDING}::test_the_frontier_adds_its_rounding_to_its_bound",),
    ),
)

KEPT = "tests/solve/test_session.py::test_single_answers"

KEPT_FORMS_BREAKS = _of(
    "solve/methods/frontier/kept.py",
    (
        "def solve(",
        "if merged or log_upper > floor + slack + rounding:",
        "if False:",
        "what a sweep over kept forms has merged passes for proven",
        (f"{KEPT}_on_dense_blocks",),
    ),
    (
        "def _log_value(",
        "self._state, self._evaluated = state.copy(), 0",
        "self._state = state.copy()",
        "a state has the values of another one at the nodes that are kept",
        (f"{KEPT}_on_dense_blocks",),
    ),
)

DENSE_SWEEP_BREAKS = (
    *_of(
        "solve/methods/frontier/sweep.py",
        (
            "def _far_from_zero(",
            "near += 0 < x < TINY",
            "near += 0",
            "in a dense block, outside bounds too small for a double count as nothing",
            ("tests/solve/test_dense_passes.py::test_outside_bounds_of_blocks_are_never_too_small[-995]",),
        ),
    ),
    *_of(
        "inference/passes.py",
        (
            "def forward_plain(",
            "if 0 < v < TINY:",
            "if 0 < v < 0.0:",
            "a pass without powers of two goes on where it needs them",
            (f"{REDUCE}::test_evidence_below_the_smallest_float",),
        ),
    ),
)

PLAN_BREAKS = _of(
    "solve/methods/frontier/scope_tree.py",
    (
        "",
        "float(EPS * on_the_way)",
        "0.0",
        "the rounding of a sweep counts as nothing",
        (f"{ROUNDING}::test_the_rounding_of_outside_bounds_is_counted",),
    ),
    (
        "",
        " + float(EPS * of_a_pass)",
        "",
        "the rounding of scopes beside the way counts as nothing",
        (f"{ROUNDING}::test_the_rounding_of_scopes_beside_the_way_is_counted",),
    ),
    (
        "def operations_on_the_way(",
        "above[plan.part[i]] = here",
        "above[plan.part[i]] = 0",
        "the rounding of one scope is counted, not of all on the way",
        (f"{ROUNDING}::test_the_rounding_of_outside_bounds_is_counted",),
    ),
    (
        "def plan_of(",
        "return fits, Plan(",
        "return True, Plan(",
        "products that split a scope in different ways pass for one structure",
        (f"{SWEEP}[laminar]", f"{SWEEP}[structured]"),
    ),
)

BRANCH_BREAKS = _of(
    "solve/methods/branch_and_bound.py",
    (
        "def _branch(",
        "if log_bounds[variable, x] <= threshold + slack:",
        "if log_bounds[variable, x] <= threshold + 0.01:",
        "a branch is given up 0.01 nats too early",
        (f"{NEAR}[branch]", f"{THRESHOLD}[0.008]"),
    ),
    (
        "def _branch(",
        "if can[variable, x]]",
        "if can[variable, x] and relative[variable, x] > 0.5]",
        "values with a small bound are never tried",
        (
            f"{NEAR}[branch]",
            f"{NEAR}[branch]",
            "tests/solve/test_branch.py::test_equals_enumeration_without_hill_climbing[dense]",
        ),
    ),
    (
        "def _branch(",
        "for y in values[i + 1 :]]",
        "for y in values[i + 2 :]]",
        "stopped, a value that was not tried is forgotten",
        (LEFT,),
    ),
    (
        "def _branch(",
        "raised(inner.log_upper, log_factor)) for inner in found.left]",
        "raised(inner.log_upper, 2 * log_factor)) for inner in found.left]",
        "stopped, the bound of what is left below is too small",
        (CORES,),
    ),
    (
        "def _branch(",
        "log_upper=max(log_upper, threshold + slack)",
        "log_upper=max(log_upper, threshold)",
        "states that the slack let go are not in the bound of a branching",
        (f"{GAP}[branch]",),
    ),
    (
        "def _branch(",
        "below = _Problem(flat, lowered(threshold, -log_factor), slack, log_bound)",
        "below = _Problem(flat, lowered(threshold, -log_factor) + 0.01, slack, log_bound)",
        "a branch has to beat 0.01 nats more than the best",
        (f"{NEAR}[branch]", f"{THRESHOLD}[0.008]"),
    ),
    (
        "def _solve(self, problem",
        "if log_upper <= threshold + slack:",
        "if log_upper <= threshold + 0.01:",
        "a node is closed 0.01 nats too early",
        (f"{NEAR}[branch]", f"{THRESHOLD}[0.008]"),
    ),
    (
        "def _solve(self, problem",
        "return best.stopped(max(log_upper, threshold + slack))",
        "return best.stopped(threshold + slack)",
        "stopped in the middle of a step, what is left counts as done",
        (f"{STOPPED_KERNEL}[branch]", STOPPED_BRANCH),
    ),
    (
        "def _solve(self, problem",
        "return best.stopped(log_upper)",
        "return best.stopped(threshold + slack)",
        "stopped between steps, what is left counts as done",
        (STOPPED_BRANCH,),
    ),
    (
        "def improve(",
        "log_value += view.log_factor",
        "log_value += 0.9 * view.log_factor",
        "the value of a state found on a smaller circuit is too large",
        (f"{NEAR}[branch]", f"{THRESHOLD}[0.008]"),
    ),
    (
        "def prune(",
        "hopeless(relative, self._cardinality, asked, floor)",
        "hopeless(relative, self._cardinality, asked, 1.01 * floor)",
        "literals are dropped 0.01 nats above the floor",
        (f"{NEAR}[branch]", f"{THRESHOLD}[0.008]"),
    ),
    (
        "def prune(",
        "keep &= edge_bounds(view.flat, view.bounds, run) > floor",
        "keep &= edge_bounds(view.flat, view.bounds, run) > 1.01 * floor",
        "edges are dropped 0.01 nats above the floor",
        (f"{NEAR}[branch]", f"{THRESHOLD}[0.008]"),
    ),
    (
        "def _factors(",
        "around = raised(done, *log_bound[i + 1 :], log_factor)",
        "around = raised(done, *log_bound[i:], log_factor)",
        "a factor has to make up for its own bound as well",
        (f"{FACTORS}[branch-0.0]", f"{NEAR}[branch]"),
    ),
    (
        "def _factors(",
        "mine = slack * sizes[i] / sum(sizes)",
        "mine = slack",
        "every factor may be missed by all of the slack",
        (f"{FACTORS}[branch-0.2]",),
    ),
    (
        "def _factors(",
        "return Found(state, done, done + slack)",
        "return Found(state, done, done)",
        "what factors were missed by is not in the bound",
        (f"{FACTORS}[branch-0.2]",),
    ),
    (
        "def _factors(",
        "return best.stopped(max(raised(around, found.log_upper), threshold + slack))",
        "return best.stopped(threshold + slack)",
        "stopped in a factor, what is left counts as done",
        ("tests/solve/test_near_ties.py::test_factors_stopped_at_every_moment",),
    ),
    (
        "def run_many(",
        "if log_bound <= incumbents.floor + slack:",
        "if log_bound <= incumbents.floor + 0.05:",
        "for the k best, a node is closed 0.05 nats too early",
        ("tests/solve/test_near_ties.py::test_the_k_best_are_complete[branch]",),
    ),
    (
        "def run_many(",
        "log_upper = max(log_upper, log_bound)\n                continue",
        "log_upper = max(log_upper, -np.inf)\n                continue",
        "for the k best, stopped, open nodes are forgotten",
        (STOPPED_BRANCH,),
    ),
    (
        "def run_many(",
        "                self._status = stop.status\n                log_upper = max(log_upper, log_bound)",
        "                self._status = stop.status\n                log_upper = max(log_upper, -np.inf)",
        "for the k best, the node at which the search is stopped is forgotten",
        (LEFT_OF_MANY,),
    ),
    (
        "def _below(",
        "floor = floor_of(incumbents.floor + slack, view.log_upper)",
        "floor = floor_of(incumbents.floor + 0.05, view.log_upper)",
        "for the k best, edges are dropped 0.05 nats above the floor",
        ("tests/solve/test_near_ties.py::test_the_k_best_are_complete[branch]",),
    ),
    (
        "def _below(",
        "if can[variable, x]:",
        "if can[variable, x] and relative[variable, x] > 0.5:",
        "for the k best, values with a small bound are never tried",
        ("tests/solve/test_near_ties.py::test_the_k_best_are_complete[branch]",),
    ),
)

BEST_FIRST_BREAKS = _of(
    "solve/methods/best_first.py",
    (
        "def go_on(",
        "while self._waiting and self._waiting[0].log_upper > self.floor + self._slack:",
        "while self._waiting and self._waiting[0].log_upper > self.floor + 0.01:",
        "parts that wait are given up 0.01 nats too early",
        (f"{NEAR}[best-first]",),
    ),
    (
        'def log_upper(self) -> float:\n        """No state has a larger log value: those',
        "return max(waiting, self._closed, self.floor + self._slack)",
        "return max(self._closed, self.floor + self._slack)",
        "stopped, the parts that wait are forgotten",
        (f"{STOPPED_BRANCH}[best-first]",),
    ),
    (
        'def log_upper(self) -> float:\n        """No state has a larger log value: those',
        "return max(waiting, self._closed, self.floor + self._slack)",
        "return max(waiting, self._closed, self.floor)",
        "states that the slack let go are not in the bound",
        (f"{GAP}[best-first]",),
    ),
    (
        "def go_on(",
        "                    self._wait(self._under_way)\n                    raise",
        "                    raise",
        "the part at which the search is stopped is forgotten",
        (f"{STOPPED_KERNEL}[best-first]", f"{STOPPED_BRANCH}[best-first]"),
    ),
    (
        "def _look(",
        "if log_upper <= self.floor + self._slack:",
        "if log_upper <= self.floor + 0.01:",
        "a part is closed 0.01 nats too early",
        (f"{NEAR}[best-first]",),
    ),
    (
        "def _branch(",
        "if log_bound > self.floor + self._slack:",
        "if log_bound > self.floor + 0.01:",
        "a value is given up 0.01 nats too early",
        (f"{NEAR}[best-first]",),
    ),
    (
        "def _branch(",
        "parts.append(self._part(log_bound, flat, raised(view.log_factor, log_factor), others))",
        "parts.append(self._part(log_bound, flat, view.log_factor - 1.0, others))",
        "what is taken out of the circuit of a value counts as less",
        (f"{NEAR}[best-first]", f"{ALIKE}[best-first]"),
    ),
    (
        "def _look(",
        "view = search.view(flat, raised(view.log_factor, log_factor))",
        "view = search.view(flat, raised(view.log_factor, log_factor) - 1.0)",
        "what is taken out of a circuit that is split counts as less",
        (f"{NEAR}[best-first]", f"{ALIKE}[best-first]"),
    ),
    (
        "def _depth_first(",
        '        if status == "optimal":\n            self._closed',
        '        if status != "precision_limit":\n            self._closed',
        "factors that were not searched to the end count as done",
        ("tests/solve/test_near_ties.py::test_factors_stopped_at_every_moment[best-first]",),
    ),
)

ITERATIVE_BREAKS = _of(
    "solve/methods/iter_solve.py",
    (
        "",
        "> self._threshold(view)\n",
        "> 1.01 * self._threshold(view)\n",
        "edges are pruned 0.01 nats above the incumbent",
        (f"{NEAR}[iterative]",),
    ),
    (
        "",
        "hopeless(tight, cardinality, asked, self._threshold(view))",
        "hopeless(tight, cardinality, asked, 1.01 * self._threshold(view))",
        "literals are fixed 0.01 nats above the incumbent",
        (f"{NEAR}[iterative]",),
    ),
    (
        "",
        "self.log_upper = min(self.log_upper, max(view.log_upper, lower))",
        "self.log_upper = min(self.log_upper, lower)",
        "the upper bound is the incumbent, whatever is left",
        ("tests/solve/test_iterative.py::TestStops::test_edge_limit[3000]",),
    ),
    (
        "def _smaller(",
        "raised(view.log_factor, log_factor)",
        "raised(view.log_factor, 1.01 * log_factor)",
        "the factor taken out of a pruned circuit is too small, and so is its bound",
        (f"{NEAR}[iterative]",),
    ),
    (
        "def _iterate(",
        "raised(view.log_factor, log_factor)",
        "raised(1.01 * view.log_factor, log_factor)",
        "the factor taken out before a split is too small, and so is the bound after it",
        ("tests/solve/test_iterative.py::test_equals_enumeration[2000]",),
    ),
    (
        "def _threshold(",
        "self.incumbents.best[1] + self.slack",
        "self.incumbents.best[1] + 2 * self.slack",
        "states are let go by twice the slack that the bound allows for",
        (f"{GAP}[iterative]",),
    ),
)

SEARCH_BREAKS = _of(
    "solve/methods/maxspn.py",
    (
        "def _search(",
        "if log_bound <= known[0] + slack:",
        "if log_bound <= known[0] + 0.01:",
        "a node is closed 0.01 nats too early",
        (f"{NEAR}[search]",),
    ),
    (
        "def _search(",
        "bound[x] <= cut:",
        "bound[x] <= 1.01 * cut:",
        "literals are struck out 0.01 nats above the best",
        (f"{NEAR}[search]",),
    ),
    (
        "def _search(",
        "ranked_bound[first[v] + i] > known[0] + slack:",
        "ranked_bound[first[v] + i] > known[0] + 0.01:",
        "a value is given up 0.01 nats too early",
        (f"{ALIKE}[search]",),
    ),
    (
        "def _search(",
        "log_bound = max(log_bound, ranked_bound[first[path[d]] + i])",
        "log_bound = max(log_bound, -np.inf)",
        "stopped, values not tried yet are forgotten",
        (STOPPED_SEARCH,),
    ),
    (
        "def _search(",
        "            known[1] = known[0] + slack\n            return",
        "            known[1] = known[0]\n            return",
        "states that the slack let go are not in the bound",
        (f"{GAP}[search]",),
    ),
    (
        "def _search(",
        "known[0] + slack - factor > plain_floor",
        "known[0] + slack - factor > -np.inf",
        "plain products underflow to 0 and what they stand for is dropped",
        ("tests/solve/test_near_ties.py::test_search_below_the_smallest_float",),
    ),
    (
        "def _stage(",
        "folded, power = normal(folded * value[c] * UP, power + exponent[c])",
        "folded, power = normal(folded * value[c] * 0.999, power + exponent[c])",
        "the constants of a stage are too small, and so are its bounds",
        (f"{NEAR}[search]",),
    ),
)

MARGINALS_BREAKS = _of(
    "solve/marginals.py",
    (
        "def marginals(",
        "v += max(f.weight[e], TINY) * value[f.child[e]]",
        "v = max(v, f.weight[e] * value[f.child[e]])",
        "the marginal of a sum is its largest term",
        (f"{NEAR}[search]",),
    ),
    (
        "def flows(",
        "flow[f.child[e]] += flow[n]",
        "flow[f.child[e]] = flow[n]",
        "the marginal of a literal forgets all products but the last",
        (f"{NEAR}[search]",),
    ),
    (
        "def flows(",
        "flow[c] += max(moved(",
        "flow[c] = max(moved(",
        "the marginal of a literal forgets all sums but the last",
        (f"{NEAR}[search]",),
    ),
)

BRUTE_BREAKS = _of(
    "solve/methods/brute_force.py",
    (
        "",
        "max(1.0 - seen * (1 - rounding), 0.0) + 1e-9",
        "1e-9",
        "stopped, the states not seen yet are forgotten",
        ("tests/solve/test_near_ties.py::test_enumeration_stopped_at_every_chunk",),
    ),
    (
        "",
        "last = min(first + chunk, count)",
        "last = min(first + chunk, count - 1)",
        "the last state is never looked at",
        (f"{SOLVE}::test_equals_enumeration[structured-brute]", f"{SOLVE}::test_equals_enumeration[many values-brute]"),
    ),
    (
        "",
        "log_upper = raised(float(best_logs[-1]), rounding) if best.size == k else -np.inf",
        "log_upper = -np.inf",
        "nothing bounds what is beside the best states",
        (f"{LAST_BIT}[brute]", f"{ROUNDING}::test_enumeration_bounds_what_rounding_hides"),
    ),
)

PRUNE_BREAKS = _of(
    "solve/supports.py",
    (
        "",
        "possible(supports, variables).sum(axis=1) > 1",
        "possible(supports, variables).sum(axis=1) > 2",
        "a variable with two values left counts as decided",
        (f"{THRESHOLD}[0.008]", f"{NEAR}[branch]"),
    ),
) + _of(
    "solve/prune.py",
    (
        "",
        "keep: Flags = ~dead[flat.child]",
        "keep: Flags = ~dead[flat.child]\n    keep[:1] = False",
        "an edge falls that has nothing to do with the literals",
        (f"{NEAR}[branch]", f"{NEAR}[iterative]"),
    ),
)

SPLIT_BREAKS = _of(
    "solve/split.py",
    (
        "def _split(",
        "if copies[c] > 1:",
        "if copies[c] > 2:",
        "a branch of the root is joined with the copy of another value",
        (f"{TRANSFORM}::test_splitting_changes_no_value[100000]",),
    ),
)

BOUNDS_BREAKS = (
    _of(
        "solve/supports.py",
        (
            "def exclude(",
            "for g in range(w, can.shape[1], words):",
            "for g in range(w, words, words):",
            "children count as exclusive if they differ in one value",
            (BOUNDS,),
        ),
        (
            "def deterministic_range(",
            "for other in range(f.start[n], e):",
            "for other in range(e - 1, e):",
            "only neighbouring children are compared",
            ("tests/solve/test_bounds.py::test_against_enumeration[250]",),
        ),
    )
    + _of(
        "solve/output_bounds.py",
        (
            "def bounds_of_range(",
            "v = max(v, term) if take_max[n] else v + term",
            "v = max(v, term)",
            "a sum whose children do not exclude each other takes the maximum",
            (BOUNDS,),
        ),
    )
    + _of(
        "solve/edge_bounds.py",
        (
            "def _edge_bounds(",
            "edge_high = min((low[n] + share[e] * (high[n] - low[n])) * UP, high[n])",
            "edge_high = share[e] * high[n]",
            "an edge bound forgets what the rest of the circuit adds",
            (BOUNDS,),
        ),
        (
            "def _edge_bounds(",
            "edge_low = min((high[n] - share[e] * (high[n] - low[n])) + 8 * EPS * high[n], high[n])",
            "edge_low = low[n]",
            "an edge bound forgets what the siblings of an adding sum add",
            (BOUNDS,),
        ),
        (
            "def _edge_bounds(",
            "high[c] = max(high[c], edge_high)",
            "high[c] = edge_high",
            "an edge bound is that of the last path, not of the best",
            (BOUNDS,),
        ),
        (
            "def _edge_bounds(",
            "low[c] = max(low[c], edge_low)",
            "low[c] = edge_low",
            "the lower end of an edge bound is that of the last path",
            (BOUNDS,),
        ),
    )
    + _of(
        "solve/conditional_bounds.py",
        (
            "def tightest(",
            "relative[asked].max(axis=1).min()",
            "relative[asked].min(axis=1).min()",
            "all states are bounded by the value with the smallest bound",
            (f"{NEAR}[best-first]", f"{TURNS}[coins]"),
        ),
        (
            "def _conditional_bounds(",
            "relative[mine + i] += part * relative[other + i]",
            "relative[mine + i] = max(relative[mine + i], part * relative[other + i])",
            "the bound of a literal takes the maximum at an adding sum",
            (BOUNDS,),
        ),
        (
            "def _conditional_bounds(",
            "most = max(most, relative[x])",
            "most = relative[x]",
            "bounds are tightened with the last value of a variable, not with its best",
            (BOUNDS,),
        ),
        (
            "def conditional_bounds(",
            "in itertools.pairwise(windows):",
            "in itertools.pairwise(windows[:2]):",
            "of several passes over the literals only the first is done",
            (f"{ROUNDING}::test_tightened_bounds_of_several_passes_hold[1]",),
        ),
        (
            "def _conditional_bounds(",
            "own[n] = max(own[n], part) if deterministic[n] else own[n] + part",
            "own[n] = max(own[n], part)",
            "a node's own tightened bound takes the maximum at an adding sum",
            (BOUNDS,),
        ),
    )
)

REGROUP_BREAKS = _of(
    "solve/regroup.py",
    (
        "def _regroup(",
        "item[items], item_weight[items] = c, _times(factor, f.weight[e])",
        "item[items], item_weight[items] = c, 0.99 * _times(factor, f.weight[e])",
        "regrouping changes weights",
        (f"{TRANSFORM}::test_regrouping_changes_no_value_and_loosens_no_bound[100000]",),
    ),
)

INCUMBENT_BREAKS = _of(
    "solve/hill_climb.py",
    (
        "def go_on(",
        "    return log_of(c.value[f.kind.size - 1], c.exponent[f.kind.size - 1])",
        "    return log_of(c.value[f.kind.size - 1], c.exponent[f.kind.size - 1]) + 0.01",
        "the value of a known state is 0.01 nats too large",
        (f"{NEAR}[frontier]", f"{NEAR}[branch]"),
    ),
    (
        "def floor(",
        "if len(self.ranked) == self._most else -np.inf",
        "if self.ranked else -np.inf",
        "with fewer than k states known, the last of them is already the one to beat",
        ("tests/solve/test_near_ties.py::test_the_k_best_are_complete[branch]", f"{TOP}[structured]"),
    ),
    (
        "def keep(",
        "if log_value > self.floor and not any(np.array_equal(state, known) for _, known in self.ranked):",
        "if log_value > self.floor:",
        "one state found twice counts as two of the k best",
        (f"{TOP}[structured]",),
    ),
    (
        "def offer_neighbours(",
        "self.offer(state, climb=False)",
        "self.keep(state, self.best[1] - self._log_scale)",
        "a state next to the best counts as being as good",
        ("tests/solve/test_near_ties.py::test_the_k_best_are_complete[branch]", f"{TOP}[structured]"),
    ),
)

ROWS_TOGETHER = "tests/solve/test_rows_together.py"
IN_PIECES = "tests/solve/test_threads.py"

TOGETHER_BREAKS = (
    *_of(
        "solve/rows_together.py",
        (
            "def _values_of_rows(",
            "                    least[j] = min(least[j], value[n, j] if value[n, j] > 0 else 1.0)\n        else:",
            "                    pass\n        else:",
            "a row whose products are too small for doubles is taken for one that is not",
            (f"{ROWS_TOGETHER}::test_a_row_with_values_beyond_doubles_is_reduced_alone",),
        ),
        (
            "def reduce(",
            "value = self._by_row[at].copy()",
            "value = self._by_row[at]",
            "scoring a state changes the values under the evidence of its row",
            (f"{ROWS_TOGETHER}::test_reduced_circuits_and_scores_are_those_of_a_row_alone",),
        ),
    ),
    *_of(
        "solve/rows_alike.py",
        (
            "def _follow(",
            "                        away[j] += weight[j, begin + t] != part[t, j]\n",
            "                        away[j] += 0\n",
            "two nodes that are one in the first row pass for one in a row where they are different",
            (f"{ROWS_TOGETHER}::test_a_row_in_which_equal_nodes_differ_is_reduced_alone",),
        ),
        (
            "def _follow(",
            "                            away[j] += value[c, j] > 0\n",
            "                            away[j] += 0\n",
            "an edge that is zero in the first row is left out in a row where it is not",
            (f"{ROWS_TOGETHER}::test_rows_with_the_same_variables_observed_are_those_of_a_row_alone",),
        ),
        (
            "def _follow(",
            "                        away[j] += not part[t, j] > SMALL\n",
            "                        away[j] += 0\n",
            "an edge of the first row stays in a row where it is zero",
            (f"{ROWS_TOGETHER}::test_rows_with_the_same_variables_observed_are_those_of_a_row_alone",),
        ),
        (
            "def _compare(",
            "                unfit[j] |= same\n",
            "                unfit[j] |= False\n",
            "two nodes that are different in the first row stay two in a row where they are equal",
            (f"{ROWS_TOGETHER}::test_a_row_in_which_different_nodes_are_equal_is_reduced_alone",),
        ),
    ),
    *_of(
        "solve/reduce.py",
        (
            "def _close(",
            "            c -= moved_by[r]\n",
            "            c -= own\n",
            "the top of a circuit in pieces refers to other nodes of them",
            (f"{IN_PIECES}::test_the_reduced_circuit_is_the_one_made_whole",),
        ),
        (
            "def _made(",
            "scopes[forms.number[n] - begin] = same_scope[scope[n]]",
            "scopes[forms.number[n] - begin] = scope[n]",
            "scopes with the same variables of the query pass for different ones",
            (f"{IN_PIECES}::test_the_reduction_knows_the_rows_and_scopes_of_its_nodes",),
        ),
    ),
    *_of(
        "solve/output_bounds.py",
        (
            "def _bounds_of_all(",
            "min(least for _, least in found)",
            "max(least for _, least in found)",
            "the least way through a part of the circuit is forgotten",
            (f"{IN_PIECES}::test_climbing_by_parts_is_climbing",),
        ),
        (
            "def relative_view(",
            "no_supports(cardinality), bounds) if faithful else None",
            "no_supports(cardinality), bounds)",
            "bounds in the place of weights pass for faithful where they are not",
            (f"{IN_PIECES}::test_bounds_in_the_place_of_the_weights",),
        ),
    ),
    *_of(
        "solve/methods/frontier/sweep_by_parts.py",
        (
            "",
            "cut.done, root, -1, exponent, *limits, work)",
            "cut.done, root, -1, 0.0, *limits, work)",
            "the top of a circuit in parts does not know the scale of their vectors",
            (f"{IN_PIECES}::test_a_sweep_by_parts_loses_nothing_above_its_bound",),
        ),
        (
            "def _together(",
            "frontier.pointer_at[of_step == i] += pointers[i]",
            "frontier.pointer_at[of_step == i] += 0",
            "the back-pointers of a part lead into another one",
            (f"{IN_PIECES}::test_a_sweep_by_parts_loses_nothing_above_its_bound",),
        ),
    ),
    *_of(
        "solve/supports.py",
        (
            "def _plain_range(",
            "whole[n] = f.start[n + 1] - f.start[n] == cardinality[f.var[f.child[f.start[n]]]]",
            "whole[n] = True",
            "a sum over some values of a variable passes for one over all",
            (f"{IN_PIECES}::test_which_sums_are_deterministic_is_told_without_supports",),
        ),
    ),
)

PARALLEL_BREAKS = _of(
    "solve/share_query.py",
    (
        "def attempt(",
        "*parts[i + 1 :]]",
        "*parts[i + 2 :]]",
        "a worker that is stopped forgets a part it has not begun",
        ("tests/solve/test_near_ties.py::test_a_worker_sends_back_all_it_has_not_done",),
    ),
    (
        "def _attempt(",
        "for inner in found.left\n",
        "for inner in found.left[1:]\n",
        "of what a search leaves, the first part is forgotten",
        (CORES, STOPPED_CORES),
    ),
    (
        "def _split(",
        "np.flatnonzero(possible(view.supports, cardinality.size)[variable])",
        "np.flatnonzero(relative[variable] > 0.5)",
        "values with a small bound are in no part",
        (CORES,),
    ),
    (
        "def log_upper(",
        "left = [*self.open_parts(), *self.lost]",
        "left = [*self.open_parts()]",
        "what killed every worker is not in the bound",
        ("tests/solve/test_parallel.py::test_what_kills_every_worker_is_left_open_and_bounded",),
    ),
    (
        "def log_upper(",
        "*(part.log_upper for part in left), -np.inf)",
        "-np.inf)",
        "stopped, open parts are not in the bound",
        (STOPPED_CORES,),
    ),
    (
        "def open_parts(",
        "parts += [part for some, _ in self.under_way.values() for part in some]",
        "parts += []",
        "what is under way counts as done",
        (CORES, STOPPED_CORES),
    ),
    (
        "def push(",
        "if part.log_upper > self.threshold:",
        "if part.log_upper > self.threshold + 0.01:",
        "a part is dropped 0.01 nats too early",
        (CORES,),
    ),
    (
        "def fill(",
        "parts = [part for part in parts if part.log_upper > self.threshold]",
        "parts = [part for part in parts if part.log_upper > self.threshold + 0.01]",
        "a part is not sent out 0.01 nats too early",
        (CORES,),
    ),
    (
        "def died(",
        "                self.push(part)",
        "                pass",
        "a part whose worker died is forgotten",
        (
            "tests/solve/test_parallel.py::test_dead_and_new_workers[coins]",
            "tests/solve/test_parallel.py::test_dead_and_new_workers[dense]",
        ),
    ),
)

FLAT_BREAKS = _of(
    "solve/query_circuit.py",
    (
        "def rebuild_until(",
        "weight[seen_at[number[c]]] = added(weight[seen_at[number[c]]], w)",
        "weight[seen_at[number[c]]] = w",
        "of two edges to one child the first is lost",
        (f"{TRANSFORM}::test_rebuild_without_some_edges[100000]",),
    ),
    (
        "def node_with_hash(",
        " or weight[start[k] + e] != weight[begin + e]:",
        ":",
        "nodes with equal children but other weights pass for one",
        (f"{TRANSFORM}::test_rebuild_without_some_edges[100000]", f"{REDUCE}::test_running_example", f"{NEAR}[branch]"),
    ),
)

UP = f"{ROUNDING}::test_bounds_are_rounded_up"
REBUILT_UP = f"{ROUNDING}::test_circuits_that_are_rebuilt_are_rounded_up"
ONE_PASS = f"{ROUNDING}::test_the_rounding_of_one_pass_is_counted"
SAFE_SUMS = f"{ROUNDING}::test_sums_of_logarithms_are_rounded_to_the_safe_side"
SAFE_WEIGHTS = f"{ROUNDING}::test_weights_are_rounded_up"
REBUILT_BEYOND = f"{ROUNDING}::test_rebuilt_beyond_doubles"
EDGES = "tests/solve/test_edges.py"

KEPT = "tests/solve/test_kept_vectors.py"
KEPT_WALKS = f"{KEPT}::test_long_walks_against_enumeration"
KEPT_GOOD = (f"{KEPT}::test_a_vector_is_taken_again_only_for_bounds_that_it_is_good_for",)
KEPT_ALL = (KEPT_WALKS, f"{KEPT}::test_floors_just_under_the_answers", f"{KEPT}::test_whatever_the_floor_and_the_room")
FORMS_LOST = f"{SESSION}::test_forms_are_lost_where_something_changed_and_nowhere_else"

KEPT_BREAKS = [
    *_of(
        "solve/kept_reduction.py",
        (
            "def _new_forms(",
            "faithful, least = learn(flat, None, known, count)",
            "faithful, least = learn(flat, None, known, after)",
            "in a session the bounds of new forms are those of forms that were there before",
            (f"{KEPT_WALKS}[plain]",),
        ),
        (
            "def _new_forms(",
            "if number[n] >= count:",
            "if number[n] > count:",
            "in a session the first of the new forms has no scope of its own",
            (f"{KEPT_WALKS}[plain]",),
        ),
        (
            "def _bring(",
            "self._plain and s.plain and self.values.powers[0] == 0",
            "self._plain and s.plain",
            "in a session forms are made without the powers of two of values",
            (f"{SESSION}::test_values_need_powers_of_two_under_some_evidence",),
        ),
        (
            "def _guarded(",
            "self.values.forget()",
            "pass",
            "in a session that was interrupted what is half done counts as done",
            (
                f"{SESSION}::test_interrupted_on_the_way",
                f"{SESSION}::test_interrupted_while_nodes_are_marked_as_wanted",
            ),
        ),
        (
            "def _score(",
            "elif weight[e] > 0 and value[c] > 0 and under[c, 1] < since[scope[c]]:",
            "elif weight[e] > 0 and value[c] > 0 and under[c, 1] == 0:",
            "in a session a state is scored with values of the state before",
            (f"{SESSION}::test_states_are_scored_to_the_last_bit[structured]",),
        ),
    ),
    *_of(
        "solve/kept_reduction.py",
        (
            "def _score(",
            "if no_powers and power != 0:",
            "if False:",
            "in a session a state far below the evidence is scored without its power of two",
            (f"{SESSION}::test_states_far_below_the_evidence_are_scored_to_the_last_bit[1e-40]",),
        ),
        (
            "def _scored(",
            "self._since[:], self._no_powers = self._questions, no_powers",
            "self._no_powers = no_powers",
            "in a session a state is scored with powers of two of an earlier one",
            (f"{SESSION}::test_powers_of_two_of_an_earlier_state_are_forgotten",),
        ),
    ),
    *_of(
        "circuit/builder.py",
        (
            "def _first_equal(",
            "same &= number[param_start[k] + i] == number[own + i]",
            "pass",
            "in a session leaves with other parameters are taken for equal",
            ("tests/circuit/test_circuit.py::test_equal_nodes_are_made_one[structured]",),
        ),
    ),
    *_of(
        "inference/kept_values.py",
        (
            "def _bring(",
            "marks[above[j]] |= FORM",
            "pass",
            "in a session what is above a node whose form changed keeps its own",
            (FORMS_LOST, f"{SESSION}::test_the_reduction_is_that_from_scratch[structured]"),
        ),
        (
            "def _bring(",
            "((mark & FORM) != 0 or kind[n] == SUM)",
            "(mark & FORM) != 0",
            "in a session sums keep the shares that their children had under the evidence before",
            (FORMS_LOST, f"{SESSION}::test_the_reduction_is_that_from_scratch[structured]"),
        ),
        (
            "def _bring(",
            "for j in range(above_at[k], above_at[k + 1]):\n                        marks[above[j]] |= FORM",
            "for j in range(above_at[k], min(above_at[k] + 1, above_at[k + 1])):\n"
            "                        marks[above[j]] |= FORM",
            "in a session only the first parent of a node whose form changed gets another form",
            (FORMS_LOST, f"{SESSION}::test_the_reduction_is_that_from_scratch[structured]"),
        ),
        (
            "def _bring(",
            "exponent[k] = power\n                for j in range(above_at[k], above_at[k + 1]):",
            "exponent[k] = power\n                for j in range(above_at[k], min(above_at[k] + 1, above_at[k + 1])):",
            "in a session only the first parent of a node that changed gets another value",
            (FORMS_LOST, f"{SESSION}::test_the_reduction_is_that_from_scratch[structured]"),
        ),
    ),
    *_of(
        "solve/forms.py",
        (
            "def build(",
            "without_powers &= power == 0",
            "pass",
            "a power of two that arises among new forms is overlooked",
            (f"{SESSION}::test_a_power_of_two_that_arises_among_new_forms_is_not_overlooked",),
        ),
    ),
    *_of(
        "circuit/builder.py",
        (
            "def reordered(",
            "number[child[edges]], weight[edges], var[order]",
            "number[child[edges]], weight, var[order]",
            "the weights of a circuit in another order stay where they were",
            (
                "tests/circuit/test_circuit.py::test_nodes_in_another_order_have_the_same_values",
                f"{SESSION}::test_nodes_that_are_needed_together_stand_side_by_side",
            ),
        ),
    ),
    *_of(
        "solve/methods/frontier/kept.py",
        (
            "def empty(",
            "self._vectors.empty()",
            "pass",
            "vectors are kept for forms that are forgotten, whose numbers others have then",
            (f"{KEPT}::test_the_store_is_emptied_with_its_vectors",),
        ),
    ),
    *_of(
        "solve/methods/frontier/kept_vectors.py",
        (
            "def _good_for(",
            "return least if least * UP >= 1 else 0.0",
            "return max(least, 1.0)",
            "kept vectors are taken for larger outside bounds than they are good for",
            KEPT_GOOD,
        ),
        (
            "def _good_for(",
            "if c >= columns or form[at + c] != p:",
            "if c >= columns:",
            "a form counts as a column that is kept because another one is where it was",
            KEPT_GOOD,
        ),
        (
            "def _good_for(",
            "if c >= columns or form[at + c] != p:",
            "if form[at + c] != p:",
            "what is left of a scope's last columns counts as kept",
            KEPT_GOOD,
        ),
        (
            "def _good_for(",
            "least = bound[at + c] * floor / outside[p]",
            "pass",
            "kept vectors are good for as much more as new ones would be",
            KEPT_GOOD,
        ),
        (
            "def sweep_again(",
            "good_for[s] = min(good_for[s], good_for[part[j]])",
            "good_for[s] = room",
            "the room of a scope is not the least of its parts'",
            KEPT_ALL,
        ),
        (
            "def sweep_again(",
            "low, at = floor / good_for[s], entry_at[s]",
            "low, at = floor * good_for[s], entry_at[s]",
            "of kept vectors those are left that are far above the floor",
            KEPT_ALL,
        ),
        (
            "def sweep_again(",
            "low, at = floor / good_for[s], entry_at[s]",
            "low, at = floor, entry_at[s]",
            "of kept vectors those are left that this question needs, not those that the ones kept above it need",
            KEPT_ALL,
        ),
        (
            "def sweep_again(",
            "part, row_at, row_end, floor / good_for[s], work",
            "part, row_at, row_end, floor, work",
            "vectors are dropped by the bounds of this question and kept for larger ones",
            KEPT_ALL,
        ),
        (
            "def sweep_again(",
            "outside, floor / good_for[s], found",
            "outside, floor / (2 * good_for[s]), found",
            "vectors are kept for larger outside bounds than they were made for",
            KEPT_ALL,
        ),
        (
            "def sweep_again(",
            "outside[c] += weight",
            "outside[c] = weight",
            "the outside bound of a column is that of one of its products, not of all",
            KEPT_ALL,
        ),
        (
            "def sweep_again(",
            "highest[i] = max(highest[i], entry[at + of[i]])",
            "highest[i] = entry[at + of[i]]",
            "the limit of a column is its value in the last vector, not the largest",
            KEPT_ALL,
        ),
        (
            "def best(",
            "if end == FOUND:",
            "if end in (FOUND, NONE_ABOVE):",
            "that there is no state above the floor is taken for the proof of one",
            (f"{KEPT}::test_whatever_the_floor_and_the_room",),
        ),
        (
            "def _list_nodes(",
            "total[child[e]] += share[e] * total[n]",
            "total[child[e]] = share[e] * total[n]",
            "the outside bound of a sum's child is what comes from its last parent",
            KEPT_ALL,
        ),
        (
            "def _list_nodes(",
            "if not total[n] <= LARGEST:",
            "if False:",
            "outside bounds are so large that numbers below them are lost",
            (f"{KEPT}::test_questions_with_many_vectors_go_another_way[LARGEST-0.5]",),
        ),
        (
            "def _list_parts(",
            "limit[child[e]] = 1.0",
            "pass",
            "a part that is not gone over yet has the limits of a question before",
            KEPT_ALL,
        ),
        (
            "def _vectors_of(",
            "covered = whole <= floor",
            "covered = whole <= 4 * floor",
            "values of a variable are dropped that are above the floor",
            KEPT_ALL,
        ),
        (
            "def _vectors_of(",
            "if not whole <= floor:",
            "if not whole <= 4 * floor:",
            "pairs of vectors are dropped that are above the floor",
            KEPT_ALL,
        ),
        (
            "def _vectors_of(",
            "weight[p] *= limit[factor[at + k]]",
            "weight[p] *= 0.5 * limit[factor[at + k]]",
            "what the parts to come may add is taken for less than it is",
            KEPT_ALL,
        ),
        (
            "def _vectors_of(",
            "for i in range(entries):\n                        if value[row_of[i], k] > best[r, i]:",
            "for i in range(max(1, entries - 1)):\n                        if value[row_of[i], k] > best[r, i]:",
            "a vector is dropped that another one covers in all but the last column",
            KEPT_ALL,
        ),
        (
            "def _keep(",
            "if count * wide > kept.entry_room[s]:",
            "if count > kept.entry_room[s]:",
            "a scope's vectors are written over those of another one",
            KEPT_ALL,
        ),
        (
            "def _forget_vectors(",
            "(kept.columns, kept.column_room,",
            "(kept.column_room,",
            "vectors are kept whose room was given to others",
            (f"{KEPT}::test_little_room",),
        ),
        (
            "def _fitting(",
            " or kept.used[_SWEEPS] > _MOST_SWEEPS",
            "",
            "sweeps are counted beyond what 32 bits hold",
            (f"{KEPT}::test_the_count_of_sweeps_begins_anew",),
        ),
    ),
    *_of(
        "circuit/circuit.py",
        (
            "def _last_asked(",
            "all(map(is_, query, names))",
            "[*query] == [*names]",
            "a query that is equal to the last one is taken for it, as True for 1",
            (
                "tests/solve/test_session_words.py::"
                "test_a_query_that_is_equal_to_the_last_one_or_has_some_of_its_names_is_understood_anew",
            ),
        ),
    ),
]

NUMBER_BREAKS = [
    *_of(
        "foundation/pairs.py",
        (
            "def raised(",
            "total + EPS * sum(map(abs, terms)) * len(terms) if",
            "total if",
            "sums of logarithms are not rounded up",
            (SAFE_SUMS,),
        ),
        (
            "def encoded(",
            "min(log2 + 2 * EPS * abs(log2), -STEP)",
            "min(log2, -STEP)",
            "a weight that is kept as its logarithm is not rounded up",
            (SAFE_SUMS,),
        ),
        (
            "def moved(",
            "if shift > -1600 else 0.0",
            "if shift > -100 else 0.0",
            "what is 2^100 times smaller than its siblings becomes 0",
            (f"{EDGES}::TestSeveralStates", f"{EDGES}::test_a_share_that_underflows_is_not_impossible"),
        ),
        (
            "def from_log(",
            "rest = ((high - product) - lost) - exponent * LN2_REST + low",
            "rest = (high - product) + low",
            "large logarithms become pairs without their last digits",
            (f"{EDGES}::test_many_observed_variables_of_small_probability", f"{ROUNDING}::test_pairs_add_up"),
        ),
    ),
    *_of(
        "solve/output_bounds.py",
        (
            "def floor_of(",
            "np.exp(min(log_floor - log_upper - rounding, 700.0))",
            "np.exp(min(log_floor - log_upper, 700.0))",
            "the floor that bounds are compared with is not rounded down",
            (f"{ROUNDING}::test_floors_are_rounded_down",),
        ),
        (
            "def floor_of(",
            "return value if value > LOWEST_FLOOR else -1.0",
            "return value if value > LOWEST_FLOOR else LOWEST_FLOOR",
            "a floor too small to be compared drops what is under the smallest doubles",
            (f"{ROUNDING}::test_floors_are_rounded_down",),
        ),
    ),
    *(
        _of(
            "solve/report.py",
            (
                "def report(",
                "2 * rounding + extra_rounding(",
                "extra_rounding(",
                "the rounding of the circuit as given is left out of the bound",
                (f"{ROUNDING}::test_the_rounding_of_the_circuit_is_in_the_answer",),
            ),
            (
                "def report(",
                "log_upper = max(others, raised(top[0].log_conditional, lost))",
                "log_upper = max(others, top[0].log_conditional)",
                "the bound of an empty query is not moved up by rounding",
                (f"{EDGES}::test_the_bound_of_an_empty_query_is_moved_up",),
            ),
        )
        + _of(
            "solve/report.py",
            (
                "def _status(",
                "(-np.inf if others == -np.inf else np.inf)",
                "-np.inf",
                "fewer than k states count as all that there are",
                (f"{ROUNDING}::test_fewer_states_than_asked_for_are_optimal_only_if_there_are_no_more",),
            ),
            (
                "def _status(",
                "if away <= limits.gap or",
                "if away <= limits.gap + 0.01 or",
                "an answer is optimal although the bounds are further apart than asked for",
                (f"{ROUNDING}::test_fewer_states_than_asked_for_are_optimal_only_if_there_are_no_more",),
            ),
        )
    ),
    *(
        (
            _of(
                "inference/scaled.py",
                (
                    "def _scaled(",
                    "4 * EPS * float(operations))",
                    "0.0 * float(operations))",
                    "the rounding of the circuit as given counts as nothing",
                    (ONE_PASS,),
                ),
            )
            + _of(
                "inference/passes.py",
                (
                    "def leaf_value(",
                    "from_log(-0.5 * square, -0.5 * square_low - z * z_low)",
                    "from_log(-0.5 * square, 0.0)",
                    "Gaussian exponents lose the digits that tell two means apart",
                    (f"{EDGES}::TestGaussians::test_far_tails",),
                ),
                (
                    "def forward_nodes(",
                    "power += exponent[s.child[e]]",
                    "power = exponent[s.child[e]]",
                    "the powers of two of a product's factors do not add up",
                    (f"{REDUCE}::test_evidence_below_the_smallest_float", ANSWERS_BEYOND),
                ),
            )
        )
        + _of(
            "inference/scaled.py",
            (
                "def _scale(",
                "operations[i] += operations[child[e]] + 2",
                "operations[i] = max(operations[i], operations[child[e]] + 2)",
                "a product does not gather the roundings of all its children",
                (ONE_PASS,),
            ),
        )
    ),
    *_of(
        "solve/forms.py",
        (
            "def _terms(",
            "        if w != 0:",
            "        if w > 1e-300:",
            "shares too small for a double are left out of the reduced circuit",
            (f"{REDUCE}::test_weights_too_small_for_a_double_are_kept_as_logarithms",),
        ),
        (
            "def _indicators(",
            "        if w != 0:",
            "        if w > 1e-300:",
            "values of a leaf too small for a double are left out of the reduced circuit",
            (f"{REDUCE}::test_leaf_values_too_small_for_a_double_are_kept", f"{EDGES}::TestSeveralStates"),
        ),
        (
            "def _terms(",
            "        c, w = scratch.term[i], scratch.share[i]",
            "        c, w = scratch.term[i], 0.999 * scratch.share[i]",
            "shares of the reduced circuit that are no plain weights are too small",
            (f"{SOLVE}::test_weights_below_the_smallest_float[interpret-brute]",),
        ),
        (
            "def build(",
            "w = weights[e] * value[c] / value[n]",
            "w = 0.999 * weights[e] * value[c] / value[n]",
            "shares of the reduced circuit are too small",
            (f"{REDUCE}::test_equals_enumeration[structured]",),
        ),
        (
            "def build(",
            "weight[seen_at[at]] = (weight[seen_at[at]] + w) * UP",
            "weight[seen_at[at]] = w",
            "of two edges of the reduced circuit to one child the first is lost",
            (f"{REDUCE}::test_equals_enumeration[structured]",),
        ),
        (
            "def _terms(",
            "store.weight[store.seen_at[at]] = added(store.weight[store.seen_at[at]], w)",
            "store.weight[store.seen_at[at]] = w",
            "of two edges to one child, one of which has no plain weight, the first is lost",
            (f"{SOLVE}::test_no_query_is_mpe",),
        ),
        (
            "def _columns(",
            " and seen_at[form] < 0",
            "",
            "two children of a dense block with the same form become two edges to one node",
            (f"{REDUCE}::test_dense_blocks",),
        ),
        (
            "def _rows(",
            "if lowest(shares[row]) <= SMALL:",
            "if lowest(shares[row]) < 0:",
            "shares too small for a double are plain weights in the rows of dense blocks",
            (f"{REDUCE}::test_dense_blocks",),
        ),
    ),
    *_of(
        "solve/query_circuit.py",
        (
            "def count_operations(",
            "count[n] = max(count[n], below) if f.kind[n] == SUM else count[n] + below",
            "count[n] = max(count[n], below)",
            "a product does not gather the roundings of all its children in the reduced circuit",
            (ONE_PASS,),
        ),
        (
            "def rebuild_until(",
            "factor[n] = factor[n] * factor[c] * UP",
            "factor[n] = factor[n] * factor[c] * (1 - 4 * EPS)",
            "the factor of a product is rounded down",
            (REBUILT_UP,),
        ),
        (
            "def rebuild_until(",
            "w = encoded(v * factor[c] * UP, power + exponent[c] - top)",
            "w = encoded(v * factor[c], power + exponent[c] - top)",
            "weights that take up a factor are not rounded up",
            (REBUILT_UP,),
        ),
        (
            "def added(",
            "return (a + b) * UP",
            "return a + b",
            "weights that are added are not rounded up",
            (SAFE_WEIGHTS,),
        ),
        (
            "def log_factor_of(",
            "rest += 4 * EPS * (1 + abs(rest))",
            "rest -= 4 * EPS * (1 + abs(rest))",
            "the factor taken out of a circuit is rounded down",
            (REBUILT_UP,),
        ),
    ),
    *(
        _of(
            "solve/output_bounds.py",
            (
                "def bounds_of_range(",
                "v, power = 1.0 + edges * EPS, 0.0",
                "v, power = 1.0 - 16 * edges * EPS, 0.0",
                "the bound of a product is rounded down",
                (UP,),
            ),
            (
                "def bounds_of_range(",
                "v *= 1.0 + (edges + 4) * EPS",
                "v *= 1.0",
                "the bound of a sum is not rounded up",
                (UP,),
            ),
            (
                "def bounds_of_range(",
                "share[e] = term / v * UP",
                "share[e] = term / v",
                "shares are not rounded up",
                (UP,),
            ),
            (
                "def bounds_of_range(",
                "                if share[e] < TINY:\n                    share[e] = TINY",
                "                if share[e] < TINY:\n                    share[e] = 0.0",
                "a share too small for a double is 0, and its branch impossible",
                (BEYOND, ANSWERS_BEYOND),
            ),
            (
                "def log_bound(",
                "return log_upper + 2 * EPS * abs(log_upper)",
                "return log_upper - 2 * EPS * abs(log_upper)",
                "the logarithm of the root's bound is rounded down",
                (UP,),
            ),
        )
        + _of(
            "solve/edge_bounds.py",
            (
                "def _edge_bounds(",
                "+ 8 * EPS * high[n], high[n])",
                "- 8 * EPS * high[n], high[n])",
                "edge bounds lose the digits of their differences",
                (UP,),
            ),
        )
        + _of(
            "solve/conditional_bounds.py",
            (
                "def _conditional_bounds(",
                "relative[root + x] * own[top] * UP",
                "relative[root + x] * own[top] * (1 - 4096 * EPS)",
                "the bounds of literals are rounded down",
                (UP,),
            ),
        )
    ),
    *_of(
        "solve/regroup.py",
        (
            "def _times(",
            "return encoded(value * other * UP, exponent + other_exponent)",
            "return encoded(value * other * (1 - 2e-16), exponent + other_exponent)",
            "weights that are multiplied out are rounded down",
            (SAFE_WEIGHTS,),
        ),
    ),
    *_of(
        "solve/methods/maxspn.py",
        (
            "def _search(",
            "log_bound = min(log_bound, log_of(value[root], exponent[root]) + factor + rounding)",
            "log_bound = min(log_bound, log_of(value[root], exponent[root]) + factor)",
            "the rounding of a pass up is left out of the bound of a node",
            (f"{ROUNDING}::test_search_raises_its_bounds_by_the_rounding_of_a_pass",),
        ),
        (
            "def _search(",
            "np.log(bound[ranked[begin + i]]) + rounding",
            "np.log(bound[ranked[begin + i]])",
            "the rounding of a pass down is left out of the bound of a value",
            (f"{ROUNDING}::test_search_raises_its_bounds_by_the_rounding_of_a_pass",),
        ),
    ),
    *_of(
        "solve/methods/frontier/sweep.py",
        (
            "def _evaluate_sums(",
            "value[row, k] = max(value[row, k], SMALLEST)",
            "value[row, k] = max(value[row, k], 0.0)",
            "values too small for a double become 0, and what they stand for impossible",
            (f"{EDGES}::test_sums_of_values_beyond_doubles_are_raised",),
        ),
        (
            "def _product(",
            "return max(a * b, SMALLEST) if a > 0 and b > 0 else 0.0",
            "return a * b",
            "bounds outside of a part become 0 where they are too small for a double",
            (BEYOND,),
        ),
        (
            "def go_up(",
            "if floor < LOWEST_FLOOR:",
            "if floor < 0.0:",
            "bounds that underflow are compared with a floor among the smallest doubles",
            (BEYOND,),
        ),
    ),
    *_of(
        "solve/methods/brute_force.py",
        (
            "def _enough(",
            "return 0.0 if least[f.kind.size - 1] > LOWEST_FLOOR else enough",
            "return 0.0",
            "values that underflow in plain products are taken for what they are",
            (f"{EDGES}::TestSeveralStates",),
        ),
    ),
    *_of(
        "solve/values.py",
        (
            "def evaluate_nodes(",
            "v, power = plus(v, power, w * value[child[e]], shift + exponent[child[e]])",
            "v, power = plus(v, power, w * value[child[e]], exponent[child[e]])",
            "a state is worth more than it is where weights are logarithms",
            (f"{EDGES}::TestSeveralStates", f"{EDGES}::test_a_share_that_underflows_is_not_impossible"),
        ),
    ),
]

NETWORK_BREAKS = [
    *(
        (
            _of(
                "network/elimination.py",
                (
                    "def _rows_out(",
                    "if value > top:",
                    "if value > top + 0.001:",
                    "a value that is better by little is not the maximum",
                    (NETWORK_TIES,),
                ),
                (
                    "def maximum(",
                    "log_upper = raised(log_max, self.problem.log_constant, rounding + self.problem.rounding)",
                    "log_upper = log_max + self.problem.log_constant",
                    "the rounding of the elimination is left out of its bound",
                    (NETWORK_LAST_BIT,),
                ),
            )
            + _of(
                "network/log_model.py",
                (
                    "def largest_finite(",
                    "largest = max(largest, abs(x))",
                    "largest = max(largest, x)",
                    "rounding is counted by numbers above 0 alone, and logs of probabilities are below",
                    (NETWORK_LAST_BIT, f"{NETWORKS}::test_where_rounding_hides_the_proof_a_circuit_is_compiled"),
                ),
            )
        )
        + _of(
            "solve/network_map.py",
            (
                "def _eliminate(",
                "if log_upper - found.log_prob <= limits.gap else",
                "if log_upper - found.log_prob <= 1.0 else",
                "an answer that rounding hides counts as proven",
                (f"{NETWORKS}::test_where_rounding_hides_the_proof_a_circuit_is_compiled",),
            ),
        )
    ),
    *_of(
        "network/scoring.py",
        (
            "def _evaluate_by_numpy(",
            "place = plan.message[c] + (which[c] ^ int(dirty[c])) * ((end - plan.message[c]) // 2)",
            "place = plan.message[c] + which[c] * ((end - plan.message[c]) // 2)",
            "where it is interpreted, a state is scored with messages of the state before",
            (
                "tests/network/test_hard_networks.py"
                "::test_scores_are_those_of_enumeration_with_any_variables_summed_out_first",
            ),
        ),
    ),
    *_of(
        "network/compile.py",
        (
            "",
            "_QUANTA = float(1 << 46)",
            "_QUANTA = float(1 << 8)",
            "rows that differ by a little are one node",
            (NETWORK_ROWS,),
        ),
        (
            "def _same_row(",
            "(key[i, x] != key[j, x] or (a != b",
            "((a != b",
            "rows with other children are one node",
            (NETWORK_ROWS,),
        ),
        (
            "def circuit(",
            "log_total += top",
            "log_total += 0.5 * top",
            "what is taken out of a message is lost",
            (f"{NETWORKS}::test_numbers_far_outside_of_doubles_do_not_underflow", NETWORK_WAYS),
        ),
        (
            "def sum_out(",
            "total += np.exp(rows[i, x] - top)",
            "total = max(total, np.exp(rows[i, x] - top))",
            "a hidden variable is maximised, not summed out",
            (NETWORK_WAYS,),
        ),
    ),
    *_of(
        "network/relevance.py",
        (
            "def barren(",
            "ancestors(network, [*query, *observed])",
            "ancestors(network, [*query])",
            "what is observed below the query counts for nothing",
            (NETWORK_WAYS, f"{NETWORKS}::test_barren_and_separated_variables"),
        ),
        (
            "def _restrict(",
            "for v in scope))] > 0",
            "for v in scope))] > 0.05",
            "values of small probability count as impossible",
            (NETWORK_WAYS,),
        ),
        (
            "",
            "ROUNDING = 4e-15",
            "ROUNDING = 4e-3",
            "tables that are almost products are taken apart",
            (f"{NETWORKS}::test_tables_that_almost_fall_apart",),
        ),
        (
            "def _keep(",
            "(share == 1).all()",
            "bool((abs(share - 1) < 0.01).all())",
            "a table that is almost constant counts as one",
            (NETWORK_TIES,),
        ),
    ),
    *_of(
        "network/mini_bucket.py",
        (
            "def tightened(",
            "found.tables[at[c] : at[c + 1]]",
            "found.filled[at[c] : at[c + 1]]",
            "larger mini-buckets count the messages of the smaller ones twice",
            ("tests/network/test_hard_networks.py::test_larger_mini_buckets_begin_where_smaller_ones_have_ended",),
        ),
    ),
    *_of(
        "io/uai.py",
        (
            "def _parse(",
            "mantissa = 10 * mantissa + np.int64(c) - 48",
            "mantissa = 10 * mantissa + (c - 48)",
            "numbers in a file wrap around where the parser is interpreted",
            ("tests/io/test_uai.py::test_numbers_are_read_to_the_last_bit",),
        ),
    ),
]

CERTIFICATE_BREAKS = [
    *_of(
        "certificate/intervals.py",
        (
            "def gauss_pair(",
            "half = min(moved(0.5 * (z * z), 5, not up), 2 * MOST_LOG)",
            "half = min(moved(0.5 * (z * z), 5, up), 2 * MOST_LOG)",
            "the density of a Gaussian is not enclosed",
            (f"{PROOFS}::test_logarithms_and_densities_are_enclosed",),
        ),
        (
            "def moved(",
            "return x * (1.0 + (operations + 2) * UNIT) if up else x * (1.0 - (operations + 2) * UNIT)",
            "return x",
            "the checker does not round to the safe side",
            (SAFE_SIDE,),
        ),
        (
            "def raised(",
            "return x * (1.0 + (operations + 2) * UNIT)",
            "return x",
            "bounds of the checker are not raised by their rounding",
            (UPPER, f"{PROOF_BOUNDS}::test_linear_bounds_are_above"),
        ),
        (
            "def exp_pair(",
            "moved(total, 6, up)",
            "total",
            "the exponential is not enclosed",
            (f"{PROOFS}::test_the_exponential_is_enclosed",),
        ),
        (
            "def log_of(",
            "return found",
            "return guess",
            "the logarithm is returned without the step that encloses it",
            (f"{PROOFS}::test_logarithms_and_densities_are_enclosed",),
        ),
        (
            "def product_above(",
            "return max(a * b, TINY) if a > 0 and b > 0 else 0.0",
            "return a * b",
            "what is too small for a double becomes 0 in an upper bound",
            (f"{PROOF_BOUNDS}::test_linear_bounds_are_above",),
        ),
        (
            "def less(",
            "return a[1] < b[1] or (a[1] == b[1] and a[0] < b[0])",
            "return a[1] < b[1]",
            "numbers within a factor of 2 count as equal",
            (FORGED,),
        ),
    ),
    *_of(
        "certificate/verify.py",
        (
            "def verify(",
            "optimal = log_upper - low <= tolerance",
            "optimal = log_upper - low <= certificate.tolerance",
            "the certificate's own tolerance decides what is optimal",
            (f"{PROOFS}::test_the_tolerance_is_the_word_of_whoever_checks",),
        ),
        (
            "def verify(",
            "if less(asked.low, exp_pair(float(certificate.log_lower), True)):",
            "if less(asked.high, exp_pair(float(certificate.log_lower), False)):",
            "what is not proven of the state is accepted",
            (f"{PROOFS}::test_what_is_not_proven_of_the_state_is_not_accepted",),
        ),
        (
            "def checked_query(",
            "continuous or column not in scope:",
            "continuous or column not in circuit.var:",
            "a variable in no reachable leaf can be queried",
            (f"{PROOFS}::test_a_variable_that_only_an_unreachable_leaf_mentions",),
        ),
        (
            "def verify(",
            "if flaw := flaw_of(certificate):",
            "if (flaw := flaw_of(certificate)) and False:",
            "a certificate may have anything in its fields",
            ("tests/certificate/test_forged_certificates.py::test_a_forged_certificate_proves_nothing_false[1]",),
        ),
        (
            "def _first_uncovered(",
            "if at < 0 or done > most:\n            return r, done",
            "if done > most:\n            return r, done",
            "a candidate that no vector covers is passed over",
            (FORGED,),
        ),
        (
            "def listed(",
            "work.take(steps)",
            "work.take(0)",
            "comparisons with vectors are not counted",
            (f"{PROOFS}::test_what_is_counted_is_what_is_done",),
        ),
        (
            "def listed(",
            "vectors.shape[1] != blocks[b].entries",
            "vectors.shape[1] > blocks[b].entries",
            "vectors may be shorter than their block has entries",
            (f"{PROOFS}::test_vectors_of_another_width_are_refused",),
        ),
        (
            "def listed(",
            "candidates.evaluate(first, second), candidates.exponent - exponent)",
            "candidates.evaluate(first, second), -exponent)",
            "the scale of the candidates is forgotten",
            (
                FORGED,
                f"{PROOFS}::test_thousands_of_variables_do_not_underflow",
                f"{PROOFS}::test_corruptions_are_refused",
            ),
        ),
        (
            "def _check_question(",
            "set(circuit.query_columns(query, ())) != set(map(circuit.own, certificate.query))",
            "not set(circuit.query_columns(query, ())) <= set(map(circuit.own, certificate.query))",
            "a certificate about more variables passes for the query asked for",
            (f"{PROOFS}::test_another_circuit_query_or_evidence",),
        ),
        (
            "def _check_question(",
            "circuit.observed(evidence) != _observed(circuit, certificate.evidence)",
            "circuit.observed(evidence).keys() != _observed(circuit, certificate.evidence).keys()",
            "a certificate about other evidence passes for the one asked for",
            (f"{PROOFS}::test_another_circuit_query_or_evidence",),
        ),
        (
            "def verify(",
            "if less(asked.low, exp_pair(float(certificate.log_lower), True)):",
            "if less(asked.high, exp_pair(float(certificate.log_lower) - 0.1, True)):",
            "the state's own value is not checked closely",
            (FORGED,),
        ),
        (
            "def listed(",
            "if len(vectors) and b == len(blocks) - 1:",
            "if len(vectors) and b < 0:",
            "the last block may list a state above the bound",
            (f"{PROOFS}::test_a_state_above_the_bound_may_not_be_listed",),
        ),
        (
            "def listed(",
            "if bad >= 0:",
            "if bad > 0:",
            "the first candidate of a block need not be covered",
            (FORGED,),
        ),
        (
            "def threshold_of(",
            "return over(exp_pair(log_upper, False), upper.scale, False)",
            "return over(exp_pair(log_upper + 0.01, False), upper.scale, False)",
            "what is dropped may be 0.01 nats above the claim",
            (FORGED,),
        ),
        (
            "def listed(",
            "if exponent != 0 and not aligned:",
            "if exponent > 4000 and not aligned:",
            "vectors may be scaled where the tree does not fit the circuit",
            (f"{PROOF_BOUNDS}::test_exponents_need_an_aligned_tree",),
        ),
        (
            "def _check_upper(",
            "if less(exp_pair(log_upper, False), upper.scale):",
            "if less(exp_pair(log_upper + 1e-9, False), upper.scale):",
            "the bound of an empty query is not checked closely",
            (f"{PROOFS}::test_empty_query_and_single_variable",),
        ),
    ),
    *_of(
        "certificate/blocks.py",
        (
            "def take(",
            "if self.done > self.most:",
            "if self.done > 100 * self.most:",
            "a hundred times the work is allowed",
            (f"{PROOFS}::test_what_is_counted_is_what_is_done",),
        ),
        (
            "def covering(",
            "steps += 1\n            if not vector[i]",
            "if not vector[i]",
            "comparisons of numbers are not counted",
            (f"{PROOFS}::test_what_is_counted_is_what_is_done[long_scans]",),
        ),
        (
            "def above(",
            "self._work.take(len(first) * len(second) * (second.shape[1] + 1))",
            "self._work.take(len(first) * len(second) * (self.block.entries + 1))",
            "pairs are counted by the entries of their block, not of its parts",
            (f"{PROOFS}::test_what_is_counted_is_what_is_done[narrow_root]",),
        ),
        (
            "def above(",
            "yield at + begin, to + column, bounds[over], dropped",
            "yield at + begin, to, bounds[over], dropped",
            "candidates of later pieces are taken for those of the first",
            (f"{PROOFS}::test_pairs_that_are_looked_at_piece_by_piece",),
        ),
        (
            "def tree_of(",
            "if not 0 <= token < variables or token in seen:",
            "if not 0 <= token < variables:",
            "a variable may be in a tree twice",
            (f"{PROOFS}::test_trees_that_are_none_are_refused",),
        ),
        (
            "def tree_of(",
            "if len(open_blocks) != 1 or len(seen) != variables:",
            "if len(open_blocks) != 1:",
            "a variable may be missing in a tree",
            (f"{PROOFS}::test_trees_that_are_none_are_refused",),
        ),
        (
            "def _is_aligned(",
            "return (left >= 0) == (right >= 0) and len(here) == (left < 0)",
            "return True",
            "every tree counts as one that fits the circuit",
            (FORGED,),
        ),
        (
            "def _pushed(",
            "constant = raised(constant + form.constant, 1)",
            "constant = raised(constant, 1)",
            "what the blocks above add is forgotten in the bound of a part",
            (f"{PROOFS}::test_the_linear_bound_holds_in_every_block",),
        ),
        (
            "def _pushed(",
            "return LinearBound(scaled, constant, form.exponent + top + shift)",
            "return LinearBound(scaled, constant, form.exponent + top)",
            "the scale of the other part is forgotten",
            (
                f"{PROOFS}::test_thousands_of_variables_do_not_underflow",
                FORGED,
            ),
        ),
        (
            "def number(",
            "self.bound[b].append(raised(math.prod(limits), len(limits)))",
            "self.bound[b].append(raised(0.9 * math.prod(limits), len(limits)))",
            "an entry is bounded below what it can be",
            (f"{PROOFS}::test_the_linear_bound_holds_in_every_block",),
        ),
        (
            "def _evaluate(",
            "value[s, k] += product_above(b.weight[e], value[b.child[e], k])",
            "value[s, k] = max(value[s, k], product_above(b.weight[e], value[b.child[e], k]))",
            "a sum is taken at its largest term",
            (FORGED,),
        ),
        (
            "def _push(",
            "value = product_above(value, b.bound[b.child[e]])",
            "value = product_above(value, 0.9 * b.bound[b.child[e]])",
            "the other factors of a product are taken too low",
            (f"{PROOFS}::test_the_linear_bound_holds_in_every_block",),
        ),
        (
            "def covering(",
            "if not vector[i] <= vectors[r, i]:",
            "if not vector[i] <= 1.01 * vectors[r, i]:",
            "a vector covers what is a little larger",
            (f"{PROOFS}::test_corruptions_are_refused[lowered_entry]",),
        ),
        (
            "def _push(",
            "weight[b.child[e]] = raised(weight[b.child[e]] + product_above(b.weight[e], weight[s]), 2)",
            "weight[b.child[e]] = raised(product_above(b.weight[e], weight[s]), 2)",
            "the linear bound of a part forgets all sums but the last",
            (FORGED,),
        ),
        (
            "def _push(",
            "result[mine] = raised(result[mine] + value, 1)",
            "result[mine] = raised(value, 1)",
            "the linear bound of a part forgets all products but the last",
            (FORGED,),
        ),
        (
            "def _push(",
            "constant = raised(constant + value, 1)",
            "constant = raised(constant, 1)",
            "what does not depend on a part is forgotten in its bound",
            (f"{LINEAR}[unstructured]",),
        ),
        (
            "def _backward(",
            "weight[b.child[e]] = raised(weight[b.child[e]] + product_above(b.weight[e], weight[s]), 2)",
            "weight[b.child[e]] = raised(product_above(b.weight[e], weight[s]), 2)",
            "the bound of a pair forgets all sums but the last",
            (FORGED,),
        ),
        (
            "def walk(",
            "limit, shift = cover.vectors.max(axis=0), cover.exponent",
            "limit, shift = cover.vectors[0], cover.exponent",
            "the other part is taken at its first vector, not at its largest entries",
            (f"{LINEAR}[structured]", f"{LINEAR}[dense]"),
        ),
        (
            "def above(",
            "over = ~(bounds <= floor)",
            "over = ~(bounds <= 1.01 * floor)",
            "candidates 0.01 nats above the claim are dropped",
            (FORGED,),
        ),
        (
            "def _mixed(",
            "mixed[r, b.right[s]] += product_above(weight[s], first[r, b.left[s]])",
            "mixed[r, b.right[s]] = product_above(weight[s], first[r, b.left[s]])",
            "the bound of a pair forgets products that share an entry",
            (FORGED,),
        ),
    ),
    *_of(
        "certificate/upper_circuit.py",
        (
            "def enclose(",
            "return _value(arrays, codes, reals, False), _value(arrays, codes, reals, True)",
            "return _value(arrays, codes, reals, True), _value(arrays, codes, reals, True)",
            "the lower end of the state's interval is rounded up",
            (f"{PROOFS}::test_states_and_upper_circuits_are_enclosed_to_the_last_digit",),
        ),
        (
            "def _fold(",
            "bound = times(bound, (factor[c], exponent[c]), True)",
            "bound = times(bound, (factor[c], exponent[c]), False)",
            "the bound of a product is rounded down",
            (f"{PROOFS}::test_no_factor_of_the_upper_circuit_is_rounded_down",),
        ),
        (
            "def _all_apart(",
            "if not apart or looks > most:",
            "if not apart and looks > most:",
            "children that do not exclude each other count as doing so",
            (
                f"{PROOFS}::test_the_upper_circuit_is_close_above[structured]",
                FORGED,
            ),
        ),
        (
            "def _fold(",
            "weight[end + i] = plain_above(over((term[i], term_exponent[i]), bound, True))",
            "weight[end + i] = plain_above(over((term[i], term_exponent[i]), bound, False))",
            "the weights of the upper circuit are rounded down",
            (f"{PROOFS}::test_no_factor_of_the_upper_circuit_is_rounded_down",),
        ),
        (
            "def _apart(",
            "for g in range(w, a.size, words):",
            "for g in range(w, words, words):",
            "children count as exclusive if they differ in one value",
            (f"{UPPER}[dense]", f"{UPPER}[normalised]"),
        ),
        (
            "def _bounds(",
            "bound[n] = max(bound[n], one) if excluding[n] else bound[n] + one",
            "bound[n] = max(bound[n], one)",
            "an adding sum is bounded by its largest term",
            (f"{UPPER}[structured]", f"{UPPER}[dense]"),
        ),
        (
            "def _merge(",
            "added = plus((term[kept - 1], term_exponent[kept - 1]), (sorted_term[i], sorted_exponent[i]), True)",
            "added = (sorted_term[i], sorted_exponent[i])",
            "of two terms of a sum over one node the first is lost",
            (f"{UPPER}[structured]", f"{UPPER}[dense]"),
        ),
        (
            "def _first_violation(",
            "if row[w] & bits[scope[child[e]], w]:",
            "if row[w] > bits[scope[child[e]], w] and False:",
            "products whose children share variables are not noticed",
            (f"{PROOFS}::test_circuits_that_are_not_circuits_are_refused",),
        ),
        (
            "def _first_violation(",
            "if scope[child[e]] != scope[n]:",
            "if scope[child[e]] > scope[n] + 1000:",
            "sums whose children have other variables are not noticed",
            (f"{PROOFS}::test_circuits_that_are_not_circuits_are_refused",),
        ),
    ),
]

RULE_BREAKS = [
    *_of(
        "solve/methods/frontier/sweep.py",
        (
            "def _dominated(",
            "if (part > use.low[i] and part > free.high[i]) or (part < use.high[i] and part < free.low[i]):",
            "if part > use.low[i] and part > free.high[i]:",
            "a vector makes way for one that does not fit all of its completions",
            (APART, f"{RULES}_from_a_bad_start[frontier]"),
        ),
        (
            "def _dominated(",
            "larger = more < 700 and _covers(kept, r, vector, np.exp(more), used)",
            "larger = True",
            "vectors are compared with what prices have taken from them",
            (APART, f"{RULES}_from_a_bad_start[frontier]"),
        ),
        (
            "def _fits(",
            "if low > pending.high[i] or high < pending.low[i]:",
            "if low > pending.high[i] + 1 or high < pending.low[i]:",
            "what exceeds the upper end of a constraint by one is kept",
            (APART, f"{RULES}_from_a_bad_start[frontier]"),
        ),
    ),
    *_of(
        "solve/prices.py",
        (
            "",
            "offset = raised(view.log_factor, log_factor, math.fsum(terms), rounding)",
            "offset = raised(view.log_factor, log_factor, rounding)",
            "the bound with prices lacks what they give back to states that satisfy the constraints",
            (PRICES,),
        ),
    ),
    *_of(
        "solve/rows.py",
        (
            "def _propagate(",
            "if dear or most - dearest[i] + rows.cost[i, x] < rows.low[r]:",
            "if dear or most - dearest[i] + rows.cost[i, x] <= rows.low[r]:",
            "literals go with which a constraint can just be satisfied",
            (f"{RULES}[dense]", f"{RULES}[coins]"),
        ),
    ),
    *_of(
        "solve/hill_climb.py",
        (
            "def _offer_allowed(",
            "if not rows.allows(state[None])[0]:",
            "if state.size == 0:",
            "states that the constraints forbid become the best known",
            (f"{RULES}[dense]", f"{RULES}[coins]"),
        ),
    ),
]

SOFT = "tests/inference/test_soft_evidence.py"
SENSITIVITY = "tests/solve/test_sensitivity.py::test_every_observation_against_enumeration[1]"
DECISIONS = "tests/solve/test_decisions.py"

ASKING_BREAKS = [
    *_of(
        "inference/soft.py",
        (
            "",
            "logs = np.log(weights) - power_above(given) * LN2",
            "logs = np.log(weights)",
            "weights above 1 are not scaled down, but scaled up again",
            (f"{SOFT}::test_against_enumeration", f"{SOFT}::test_a_weight_of_one_factor_moves_everything_alike"),
        ),
        (
            "",
            "power += power_above(value)",
            "power = power_above(value)",
            "of several weighted variables only the last is scaled back",
            (f"{SOFT}::test_against_enumeration",),
        ),
    ),
    *_of(
        "inference/truncated.py",
        (
            "def _log_masses(",
            "near = a if a >= 0 else -b",
            "near = a if a >= 0 else b",
            "an interval below the mean is taken for one above it",
            (f"{SOFT}::test_masses_of_gaussians_far_out",),
        ),
        (
            "def _one_sided(",
            "length = min(h, 2 * _DEPTH / (a + math.sqrt(a * a + 2 * _DEPTH)))",
            "length = min(h, 2 * 8.0 / (a + math.sqrt(a * a + 2 * 8.0)))",
            "the tail of a mass is cut off too early",
            (f"{SOFT}::test_masses_of_gaussians_far_out",),
        ),
    ),
    *_of(
        "network/virtual.py",
        (
            "",
            "power += shift",
            "power = shift",
            "of several weighted variables only the last is scaled back",
            (f"{SOFT}::test_against_enumeration", f"{SOFT}::test_weights_of_any_size_in_networks"),
        ),
        (
            "def _parts(",
            "np.ldexp(1.0, exponent - half)",
            "np.ldexp(1.0, half)",
            "weights that are taken apart are not the product of their parts",
            (f"{SOFT}::test_weights_of_any_size_in_networks",),
        ),
    ),
    *_of(
        "solve/report.py",
        (
            "def moved(",
            "log_upper = raised(result.log_upper, factor, lost)",
            "log_upper = raised(result.log_upper, lost)",
            "the bound is not scaled back as the state is",
            (f"{SOFT}::test_stopped_early_the_bounds_hold", f"{SOFT}::test_against_enumeration"),
        ),
    ),
    *_of(
        "certificate/upper_circuit.py",
        (
            "def _multiply(",
            "total = plus(total, one, up)",
            "total = one",
            "a hidden variable with weights is summed over its last value only",
            (f"{SOFT}::test_certificates_cover_sets_and_likelihoods_and_refuse_intervals",),
        ),
    ),
    *_of(
        "solve/sensitivity.py",
        (
            "def _decided(",
            "left = probability * (1 + _MARGIN) - float(joint.sum())",
            "left = 0.5 * (probability * (1 + _MARGIN) - float(joint.sum()))",
            "other states are given half of what is left for them",
            (SENSITIVITY,),
        ),
        (
            "def run(",
            "rest = self._share(top[-1]) * (1 + _PROVEN)",
            "rest = 0.0",
            "no state but the best ones is thought possible",
            (SENSITIVITY,),
        ),
    ),
    *_of(
        "solve/explain.py",
        (
            "def _largest_ratios(",
            "ratio[n] = max(ratio[n], ratio[s.child[e]])",
            "ratio[n] = ratio[s.child[e]]",
            "the ratio of a sum is that of its last child",
            (f"{DECISIONS}::test_explanations_against_enumeration",),
        ),
        (
            "def _bound(",
            "return log_ratio - (self.log_evidence - self.log_all + math.log(node.not_posterior)) + _SAME",
            "return log_ratio - (self.log_evidence - self.log_all) + _SAME",
            "the bound forgets that the evidence becomes rarer without the explanation",
            (f"{DECISIONS}::test_explanations_against_enumeration",),
        ),
    ),
    *_of(
        "solve/decide.py",
        (
            "",
            "likelihood = np.ones((len(utilities), *table.shape))",
            "likelihood = np.full((len(utilities), *table.shape), 0.9)",
            "the utilities that are not chosen are not certain to be seen",
            (f"{DECISIONS}::test_decisions_against_enumeration",),
        ),
        (
            "",
            "_refuse_effects(free, chosen, evidence)",
            "_refuse_effects(free, [], evidence)",
            "evidence below a decision is taken, which changes what is maximised",
            (f"{DECISIONS}::test_decisions_against_enumeration",),
        ),
    ),
]

MUTATIONS: list[Mutation] = [
    *SWEEP_BREAKS,
    *FRONTIER_BREAKS,
    *KEPT_FORMS_BREAKS,
    *PLAN_BREAKS,
    *DENSE_SWEEP_BREAKS,
    *BRANCH_BREAKS,
    *BEST_FIRST_BREAKS,
    *ITERATIVE_BREAKS,
    *SEARCH_BREAKS,
    *MARGINALS_BREAKS,
    *BRUTE_BREAKS,
    *PRUNE_BREAKS,
    *SPLIT_BREAKS,
    *BOUNDS_BREAKS,
    *REGROUP_BREAKS,
    *INCUMBENT_BREAKS,
    *TOGETHER_BREAKS,
    *PARALLEL_BREAKS,
    *FLAT_BREAKS,
    *KEPT_BREAKS,
    *NUMBER_BREAKS,
    *NETWORK_BREAKS,
    *CERTIFICATE_BREAKS,
    *RULE_BREAKS,
    *ASKING_BREAKS,
]

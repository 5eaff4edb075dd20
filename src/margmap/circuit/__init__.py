"""Circuits: the value, its variables, formulas, structure, vtrees, and what counts as a model."""

from margmap.circuit.circuit import BERNOULLI as BERNOULLI
from margmap.circuit.circuit import BINOMIAL as BINOMIAL
from margmap.circuit.circuit import CATEGORICAL as CATEGORICAL
from margmap.circuit.circuit import GAUSSIAN as GAUSSIAN
from margmap.circuit.circuit import INDICATOR as INDICATOR
from margmap.circuit.circuit import KIND_NAMES as KIND_NAMES
from margmap.circuit.circuit import MAX_CARDINALITY as MAX_CARDINALITY
from margmap.circuit.circuit import PRODUCT as PRODUCT
from margmap.circuit.circuit import SUM as SUM
from margmap.circuit.circuit import Circuit as Circuit
from margmap.circuit.circuit import FloatArray as FloatArray
from margmap.circuit.circuit import IntArray as IntArray
from margmap.circuit.circuit import KindArray as KindArray
from margmap.circuit.circuit import LongArray as LongArray
from margmap.circuit.circuit import Name as Name
from margmap.circuit.circuit import Named as Named
from margmap.circuit.circuit import Parts as Parts
from margmap.circuit.circuit import Value as Value
from margmap.circuit.circuit import Variable as Variable
from margmap.circuit.circuit import assemble as assemble
from margmap.circuit.circuit import first_repeat as first_repeat
from margmap.circuit.circuit import listed as listed

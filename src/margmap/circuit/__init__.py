"""Circuits: the value, its variables, leaves, formulas, structure, vtrees, and what counts as a model."""

from margmap.circuit.arrays import FloatArray as FloatArray
from margmap.circuit.arrays import IntArray as IntArray
from margmap.circuit.arrays import KindArray as KindArray
from margmap.circuit.arrays import LongArray as LongArray
from margmap.circuit.builder import Parts as Parts
from margmap.circuit.builder import assemble as assemble
from margmap.circuit.circuit import Circuit as Circuit
from margmap.circuit.encoding import Encoding as Encoding
from margmap.circuit.leaves import BERNOULLI as BERNOULLI
from margmap.circuit.leaves import BINOMIAL as BINOMIAL
from margmap.circuit.leaves import CATEGORICAL as CATEGORICAL
from margmap.circuit.leaves import GAUSSIAN as GAUSSIAN
from margmap.circuit.leaves import INDICATOR as INDICATOR
from margmap.circuit.leaves import KIND_NAMES as KIND_NAMES
from margmap.circuit.leaves import PRODUCT as PRODUCT
from margmap.circuit.leaves import SUM as SUM
from margmap.circuit.variable import MAX_CARDINALITY as MAX_CARDINALITY
from margmap.circuit.variable import Name as Name
from margmap.circuit.variable import Named as Named
from margmap.circuit.variable import Value as Value
from margmap.circuit.variable import Variable as Variable
from margmap.circuit.variable import first_repeat as first_repeat
from margmap.circuit.variable import listed as listed

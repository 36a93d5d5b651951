"""Operations that have a rule, and that none of Keras's own steps executes: users' code does."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from tests.spmd.corpus import ROWS, Corpus, TracedStep

_raw = tf.raw_ops


@dataclass
class _Step(TracedStep):
    """A function of arrays, traced for any number of rows."""

    arrays: Sequence[np.ndarray] = field(default=(), repr=False)

    def batch(self, rows: int) -> list[tf.Tensor]:
        """The first rows of the arrays."""
        return [tf.constant(array[:rows]) for array in self.arrays]


_RNG = np.random.default_rng(1)
_N = max(ROWS)


def _record(number: int) -> bytes:
    lists = {
        "pair": tf.train.Feature(float_list=tf.train.FloatList(value=[number, number / 3])),
        "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"n%d" % number])),
    }
    feature = {**lists, "odd": tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))}
    features = tf.train.Features(feature=feature if number % 2 else lists)
    return bytes(tf.train.Example(features=features).SerializeToString())


REALS = _RNG.uniform(-0.9, 0.9, (_N, 4))
POSITIVE = _RNG.uniform(1.1, 3.0, (_N, 4))
OTHERS = _RNG.uniform(0.2, 0.8, (_N, 4))
WHOLE = _RNG.integers(1, 9, (_N, 4)).astype(np.int32)
COMPLEX = REALS + 1j * OTHERS
SQUARES = np.stack([np.eye(3) * 2 + 0.1 * _RNG.standard_normal((3, 3)) for _ in range(_N)])
DEFINITE = SQUARES @ SQUARES.transpose(0, 2, 1)
IMAGES = _RNG.uniform(0, 1, (_N, 8, 8, 3)).astype(np.float32)
RECORDS = np.array([_record(number) for number in range(_N)], dtype=object)
WORDS = np.array([[f" Word{i}x{j} " for j in range(2)] for i in range(_N)], dtype=object)
NUMERALS = np.array([[f"{i}.5"] for i in range(_N)], dtype=object)

_REAL = "Asin Asinh Acos Atan Atanh BesselI0e BesselI1e Cosh Erf Erfinv Rint Sinh Snapshot"
_ABOVE_ONE = "Acosh Digamma Lgamma"
_TWO = "Add Atan2 Div MulNoNan NextAfter Xdivy Xlog1py Xlogy"
_GRADIENTS = "InvGrad ReciprocalGrad SoftplusGrad"
_WHOLE = "BitwiseXor Mod TruncateDiv TruncateMod"


def _each(names: str, *arguments: Any) -> list[Any]:
    """The raw operations with these names."""
    made = []
    for name in names.split():
        operation = getattr(_raw, name)
        words = [word for word in inspect.signature(operation).parameters if word not in ("name", "Tout")]
        made.append(operation(**dict(zip(words, arguments, strict=False))))
    return made


def _entrywise(x: Any, above_one: Any, other: Any, whole: Any, z: Any) -> list[Any]:
    return [
        *_each(_REAL, x),
        *_each(_ABOVE_ONE, above_one),
        *_each(_TWO, other, above_one),
        *_each(_GRADIENTS, other, x),
        *_each(_WHOLE, whole, whole + 1),
        *_each("Igamma Igammac Zeta", above_one, other),
        _raw.Betainc(a=above_one, b=above_one, x=other),
        _raw.Polygamma(a=tf.ones_like(other), x=above_one),
        _raw.Ndtri(x=other),
        _raw.ClipByValue(t=x, clip_value_min=tf.constant(-0.5, x.dtype), clip_value_max=tf.constant(0.5, x.dtype)),
        _raw.CheckNumerics(tensor=x, message=""),
        _raw.PreventGradient(input=x),
        _raw.Inv(x=above_one),
        _raw.Invert(x=whole),
        _raw.Angle(input=z, Tout=tf.float64),
        _raw.ComplexAbs(x=z, Tout=tf.float64),
        _raw.Conj(input=z),
        _raw.DeepCopy(x=x),
    ]


def _along_axes(x: Any, z: Any) -> list[Any]:
    return [
        _raw.ArgMin(input=x, dimension=1),
        _raw.Cumprod(x=x, axis=1),
        _raw.CumulativeLogsumexp(x=x, axis=1),
        _raw.EuclideanNorm(input=x, axis=[1]),
        _raw.EuclideanNorm(input=x, axis=[0]),
        _raw.L2Loss(t=x),
        _raw.NthElement(input=x, n=1),
        _raw.Rank(input=x),
        _raw.FFT(input=z),
        _raw.IFFT(input=z),
        _raw.FFT2D(input=z[:, None, :]),
        _raw.IFFT2D(input=z[:, None, :]),
        _raw.EnsureShape(input=x, shape=[None, 4]),
        _raw.RFFT(input=tf.cast(x, tf.float32), fft_length=[4]),
        _raw.IRFFT(input=tf.cast(z, tf.complex64), fft_length=[4]),
    ]


def _matrices(a: Any, definite: Any, x: Any) -> list[Any]:
    return [
        _raw.BatchMatMul(x=a, y=definite),
        _raw.BatchMatMulV3(x=a, y=definite, Tout=tf.float64),
        _raw.Cholesky(input=definite),
        _raw.MatrixBandPart(input=a, num_lower=tf.constant(1, tf.int64), num_upper=tf.constant(0, tf.int64)),
        _raw.MatrixDeterminant(input=a),
        _raw.MatrixDiag(diagonal=x),
        _raw.MatrixDiagPart(input=a),
        _raw.MatrixLogarithm(input=tf.cast(definite, tf.complex128)),
        _raw.MatrixInverse(input=a),
        _raw.MatrixSolve(matrix=a, rhs=definite),
        _raw.MatrixSquareRoot(input=definite),
        _raw.MatrixTriangularSolve(matrix=a, rhs=definite),
    ]


def _images(x: Any) -> list[Any]:
    pooled = tf.nn.max_pool2d(x, 2, 2, "VALID")
    return [
        _raw.AdjustContrastv2(images=x, contrast_factor=0.5),
        _raw.AdjustHue(images=x, delta=0.1),
        _raw.AdjustSaturation(images=x, scale=0.5),
        _raw.SpaceToDepth(input=x, block_size=2),
        _raw.DepthToSpace(input=tf.concat([x, x, x, x], -1), block_size=2),
        _raw.Dilation2D(input=x, filter=tf.ones([2, 2, 3]), strides=[1] * 4, rates=[1] * 4, padding="VALID"),
        _raw.LRN(input=x),
        _raw.MaxPoolGradGrad(
            orig_input=x, orig_output=pooled, grad=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID"
        ),
        _raw.ResizeArea(images=x, size=[4, 4]),
        _raw.ResizeBicubic(images=x, size=[4, 4]),
        _raw.ResizeBicubicGrad(grads=pooled, original_image=x),
        _raw.ResizeNearestNeighbor(images=x, size=[4, 4]),
        _raw.ResizeNearestNeighborGrad(grads=pooled, size=[8, 8]),
        _raw.ScaleAndTranslate(images=x, size=[4, 4], scale=[0.5, 0.5], translation=[0.0, 0.0]),
    ]


def _volumes(x: Any) -> list[Any]:
    volumes = tf.stack([x, x, x, x], 1)
    pooled = tf.nn.max_pool3d(volumes, 2, 2, "VALID")
    given = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "VALID"}
    return [_raw.MaxPool3DGradGrad(orig_input=volumes, orig_output=pooled, grad=volumes, **given)]


def _convolutions(x: Any) -> list[Any]:
    """In float32, in which oneDNN computes them; Keras's are tried in float64."""
    given = {"strides": [1, 2, 2, 1], "padding": "SAME"}
    volumes = tf.stack([x, x, x, x], 1)
    return [
        _raw.Conv2D(input=x, filter=tf.ones([3, 3, 3, 5]), **given),
        _raw.DepthwiseConv2dNative(input=x, filter=tf.ones([3, 3, 3, 2]), **given),
        _raw.Conv3D(input=volumes, filter=tf.ones([2, 3, 3, 3, 5]), strides=[1, 2, 2, 2, 1], padding="SAME"),
    ]


def _texts(words: Any, numerals: Any) -> list[Any]:
    return [
        _raw.RegexFullMatch(input=words, pattern=".*1.*"),
        _raw.RegexReplace(input=words, pattern="W", rewrite="V"),
        _raw.StaticRegexFullMatch(input=words, pattern=".*1.*"),
        _raw.StringLength(input=words),
        _raw.StringStrip(input=words),
        _raw.StringUpper(input=words),
        _raw.StringToHashBucket(string_tensor=words, num_buckets=7),
        _raw.StringToHashBucketStrong(input=words, num_buckets=7, key=[1, 2]),
        _raw.StringToNumber(string_tensor=numerals, out_type=tf.float64),
    ]


def _parsed(records: Any) -> list[Any]:
    fixed = {
        "pair": tf.io.FixedLenFeature([2, 1], tf.float32),
        "name": tf.io.FixedLenFeature([], tf.string),
        "odd": tf.io.FixedLenFeature([], tf.int64, -1),
    }
    of_any_length = {"pair": tf.io.FixedLenSequenceFeature([], tf.float32, allow_missing=True)}
    made = [tf.io.parse_example(records, features) for features in (fixed, of_any_length)]
    return [tensor for one in made for tensor in one.values()]


def _random(x: Any) -> list[Any]:
    shape = tf.shape(x)
    key, counter = tf.constant([3], tf.uint64), tf.constant([1, 2], tf.uint64)
    seed = tf.constant([1, 2])
    return [
        _raw.StatelessRandomUniformFullIntV2(shape=shape, key=key, counter=counter, alg=1, dtype=tf.uint64),
        _raw.StatelessRandomUniformV2(shape=[2 * shape[0], 3], key=key, counter=counter, alg=1, dtype=tf.bfloat16),
        _raw.StatelessRandomNormalV2(shape=[shape[0], 1, shape[0]], key=key, counter=counter, alg=3, dtype=tf.float64),
        _raw.StatelessRandomUniformIntV2(shape=[shape[0], 3], key=key, counter=counter, alg=1, minval=-5, maxval=9),
        _raw.StatelessRandomNormalV2(shape=[3, shape[0]], key=key, counter=counter, alg=1),
        _raw.StatelessRandomNormalV2(shape=[shape[0], 0], key=key, counter=counter, alg=1),
        _raw.StatelessTruncatedNormalV2(shape=shape, key=key, counter=counter, alg=1),
        _raw.StatelessRandomNormal(shape=shape, seed=seed),
        _raw.StatelessRandomUniform(shape=shape, seed=seed),
        _raw.StatelessTruncatedNormal(shape=shape, seed=seed),
        _raw.RandomUniform(shape=shape, dtype=tf.float64, seed=1, seed2=2),
        _raw.RandomStandardNormal(shape=shape, dtype=tf.float64, seed=1, seed2=2),
        _raw.RandomUniformInt(shape=shape, minval=0, maxval=7, seed=1, seed2=2),
        _raw.TruncatedNormal(shape=shape, dtype=tf.float64, seed=1, seed2=2),
    ]


@functools.cache
def _states() -> Callable[..., list[Any]]:
    """Not made at import: files that are collected later set how many threads TensorFlow begins with."""
    table = tf.Variable(_RNG.standard_normal((9, 3)))
    generator = tf.random.Generator.from_seed(3)

    def use(places: Any) -> list[Any]:
        items = _raw.TensorListReserve(element_shape=-1, num_elements=2, element_dtype=tf.int32)
        items = _raw.TensorListResize(input_handle=items, size=3)
        items = _raw.TensorListSetItem(input_handle=items, index=2, item=places)
        return [
            _raw.ResourceGather(resource=table.handle, indices=places, dtype=tf.float64),
            _raw.TensorListGetItem(input_handle=items, index=2, element_shape=-1, element_dtype=tf.int32),
            generator.normal(tf.shape(places)),
            generator.uniform(tf.shape(places)),
        ]

    return use


_STEPS: tuple[tuple[str, Callable[..., list[Any]], tuple[np.ndarray, ...]], ...] = (
    ("entrywise", _entrywise, (REALS, POSITIVE, OTHERS, WHOLE, COMPLEX)),
    ("along axes", _along_axes, (REALS, COMPLEX)),
    ("matrices", _matrices, (SQUARES, DEFINITE, REALS)),
    ("images", _images, (IMAGES,)),
    ("volumes", _volumes, (IMAGES,)),
    ("convolutions", _convolutions, (IMAGES,)),
    ("texts", _texts, (WORDS, NUMERALS)),
    ("records", _parsed, (RECORDS,)),
    ("random", _random, (REALS,)),
)


def other_operations() -> Corpus:
    """Each of them as a trace has it, with its values."""
    made = Corpus()
    for name, function, arrays in (*_STEPS, ("states", _states(), (WHOLE,))):
        specs = [tf.TensorSpec([None, *array.shape[1:]], tf.constant(array).dtype) for array in arrays]
        concrete = tf.function(function, autograph=False).get_concrete_function(*specs)
        made.add(_Step("operations", name, None, concrete, [], arrays=arrays))
    return made

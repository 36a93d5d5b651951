"""Products of matrices, convolutions, pools: factors in which rows are carried along, or summed over."""

from collections.abc import Callable, Sequence

from paceline.spmd.decisions import Build, Decision, Operation
from paceline.spmd.placements import Spec
from paceline.spmd.rules import no_rows
from paceline.spmd.rules.rule import MapOfFactors, Rule, rules


def _matrix_product(op: Operation, specs: Sequence[Spec]) -> str:
    """`... i k, ... k j -> ... i j`, with the factors of an input exchanged where it is transposed."""
    del specs
    if op.type == "MatMul":
        one, two = op.get_attr("transpose_a"), op.get_attr("transpose_b")
    else:
        one, two = op.get_attr("adj_x"), op.get_attr("adj_y")
    batch = "" if op.type == "MatMul" else "... "
    return f"{batch}{'k i' if one else 'i k'}, {batch}{'j k' if two else 'k j'} -> {batch}i j"


def _einsum(op: Operation, specs: Sequence[Spec]) -> str | None:
    """The equation, if no index stands twice in an operand."""
    del specs
    equation = op.get_attr("equation").decode()
    left, _, right = equation.partition("->")
    operands = [*left.split(","), right]
    if any(len(set(letters := operand.replace("...", "").strip())) != len(letters) for operand in operands):
        return None  # a diagonal
    # Every letter may be divided. Large and small ones are different letters.
    spelled = [
        " ".join("..." if letter == "." else f"f{ord(letter)}" for letter in operand.strip().replace("...", "."))
        for operand in operands
    ]
    return f"{', '.join(spelled[:-1])} -> {spelled[-1]}"


def _last(op: Operation) -> bool:
    """Whether channels are the last dimension."""
    return op.get_attr("data_format") in (b"NHWC", b"NDHWC")


def _images(text: str, without_rows: Callable[[Decision], Build] | None = None) -> MapOfFactors:
    """A map in which `*` stands for the dimensions of images in one layout or the other: `*H C` is rows, places,
    channels."""

    def write(op: Operation, specs: Sequence[Spec]) -> str:
        places = (specs[-1].rank or 4) - 2
        words = []
        for word in text.replace("[", "[ ").replace("]", " ]").replace(",", " ,").split():
            if word.startswith("*"):  # *HC: rows, places H, channels C
                where = [f"{word[1]}{index}" for index in range(places)]
                words.append(" ".join(["n", *where, word[2:]] if _last(op) else ["n", word[2:], *where]))
            elif word.startswith("+"):
                words.append(" ".join(f"{word[1]}{index}" for index in range(places)))
            else:
                words.append(word)
        return " ".join(words)

    write.__doc__ = f"`{text}`: `*HC` is rows, places, channels, or channels first; `+R` is places."
    return MapOfFactors(write, without_rows=without_rows)


def _bias(op: Operation, specs: Sequence[Spec]) -> str:
    """`... C, C -> ... C`, or with channels first."""
    del specs
    return "... C, C -> ... C" if _last(op) else "n C ..., C -> n C ..."


def _bias_gradient(op: Operation, specs: Sequence[Spec]) -> str:
    """`... C -> C`, or with channels first."""
    del specs
    return "... C -> C" if _last(op) else "n C ... -> C"


TABLE: dict[str, Rule] = {
    **rules("MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3", MapOfFactors(_matrix_product, linear=((0,), (1,)))),
    "Einsum": MapOfFactors(_einsum, linear=((0,), (1,))),
    **rules("Conv2D Conv3D", _images("*HC, +R Ci D -> *OD", no_rows.filled_for_onednn)),
    "DepthwiseConv2dNative": _images("*HC, +R Ci M -> *OD", no_rows.filled_for_onednn),
    **rules("Conv2DBackpropInput Conv3DBackpropInputV2", _images("[*HC], +R Ci D, *OD -> *HC")),
    "DepthwiseConv2dNativeBackpropInput": _images("[*HC], +R Ci M, *OD -> *HC"),
    **rules("Conv2DBackpropFilter Conv3DBackpropFilterV2", _images("*HC, Z, *OD -> +R Ci D")),
    "DepthwiseConv2dNativeBackpropFilter": _images("*HC, Z, *OD -> +R Ci M", no_rows.zeros),
    **rules("MaxPool MaxPool3D", _images("*HC -> *OC", no_rows.filled)),
    **rules("AvgPool AvgPool3D", _images("*HC -> *OC")),
    **rules("AvgPoolGrad AvgPool3DGrad", _images("[*HC], *OC -> *HC")),
    **rules("MaxPoolGrad MaxPool3DGrad", _images("*HC, *OC, *OC -> *HC", no_rows.filled)),
    "MaxPoolGradGrad": _images("*HC, *OC, *HC -> *OC"),
    "MaxPool3DGradGrad": _images("*HC, *OC, *HC -> *OC", no_rows.one_more_row),
    "BiasAdd": MapOfFactors(_bias, stays_filled=True),
    "BiasAddGrad": MapOfFactors(_bias_gradient, linear=((0,),), without_rows=no_rows.apart),
    **rules(
        "ResizeBilinear ResizeNearestNeighbor ResizeBicubic ResizeArea AdjustContrastv2",
        MapOfFactors("n H W C, Z -> n O P C"),
    ),
    **rules("ResizeBilinearGrad ResizeBicubicGrad", MapOfFactors("n O P C, n H W C -> n H W C")),
    "ScaleAndTranslate": MapOfFactors("n H W C, Z, Z, Z -> n O P C"),
    "ResizeNearestNeighborGrad": MapOfFactors("n O P C, Z -> n H W C"),
    "ImageProjectiveTransformV3": MapOfFactors("... H W C, ... T, Z, -> ... O P C"),
    **rules("SpaceToDepth DepthToSpace", MapOfFactors("n H W C -> n O P D")),
    **rules("RGBToHSV HSVToRGB", MapOfFactors("... C -> ... C")),
    "AdjustHue": MapOfFactors("... C, -> ... C"),
    "AdjustSaturation": MapOfFactors("... C, -> ... C"),
    "Dilation2D": MapOfFactors("n H W C, R S C -> n O P C"),
    "LRN": MapOfFactors("n H W C -> n H W C"),
}

"""exp, log and quantiles from additions, multiplications, divisions and square roots alone.

IEEE 754 fixes those four to the last bit. It does not fix ``math.exp`` and ``math.log``: their last bits differ between
operating systems, and a trace that is to be the same on every machine may not depend on them.
"""

from __future__ import annotations

import math

_LN2_HIGH = 0.6931471803691238  # its last 21 bits are zero: times a small whole number it is exact
_LN2_LOW = 1.9082149292705877e-10
_PER_LN2 = 1.4426950408889634
_SQRT_HALF = 0.7071067811865476
_PER_FACTORIAL = tuple(1.0 / math.factorial(n) for n in range(3, 14))
_PER_ODD = tuple(1.0 / n for n in range(3, 23, 2))


def exp(x: float) -> float:
    """Return e^x, within two units of the last place.

    e^x = 2^k e^r,  k = round(x / ln 2),  r = x - k ln 2,  e^r by its series

    >>> exp(0.0), abs(exp(1.0) - math.e) < 1e-15, exp(-1000.0)
    (1.0, True, 0.0)
    """
    if not -745.0 < x < 709.0:
        if x < 0.0:
            return 0.0
        raise OverflowError(f"exp({x!r})")
    k = math.floor(x * _PER_LN2 + 0.5)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13 = _PER_FACTORIAL
    high = (((((c13 * r + c12) * r + c11) * r + c10) * r + c9) * r + c8) * r + c7
    rest = ((((high * r + c6) * r + c5) * r + c4) * r + c3) * r + 0.5
    return math.ldexp(1.0 + (r + r * r * rest), k)


def log(x: float) -> float:
    """Return the natural logarithm of ``x`` > 0, within a few units of the last place.

    log(2^k m) = k ln 2 + 2 artanh(s),  s = (m - 1) / (m + 1),  sqrt(1/2) <= m < sqrt(2)

    >>> log(1.0), abs(log(10.0) - math.log(10.0)) < 1e-15
    (0.0, True)
    """
    if x <= 0.0:
        raise ValueError(f"log({x!r})")
    m, k = math.frexp(x)
    if m < _SQRT_HALF:
        m, k = 2.0 * m, k - 1
    s = (m - 1.0) / (m + 1.0)
    square = s * s
    c3, c5, c7, c9, c11, c13, c15, c17, c19, c21 = _PER_ODD
    high = ((((c21 * square + c19) * square + c17) * square + c15) * square + c13) * square + c11
    rest = (((high * square + c9) * square + c7) * square + c5) * square + c3
    return k * _LN2_HIGH + (2.0 * (s + s * square * rest) + k * _LN2_LOW)


def normal_quantile(u: float) -> float:
    """Return z with P(Z <= z) = ``u``, for 0 < ``u`` < 1, to about 16 digits: algorithm AS 241 (M. J. Wichura, 1988).

    >>> normal_quantile(0.5), round(normal_quantile(0.975), 12)
    (0.0, 1.95996398454)
    """
    q = u - 0.5
    if -0.425 <= q <= 0.425:
        r = 0.180625 - q * q
        return q * _ratio(r, _MIDDLE)
    r = math.sqrt(-log(u if q < 0.0 else 1.0 - u))
    z = _ratio(r - 1.6, _SIDE) if r <= 5.0 else _ratio(r - 5.0, _TAIL)
    return -z if q < 0.0 else z


def exponential_quantile(u: float) -> float:
    """Return -log(1 - u), for 0 <= ``u`` < 1: from a uniform draw, an exponential one with mean 1.

    >>> exponential_quantile(0.0), round(exponential_quantile(0.5), 6)
    (0.0, 0.693147)
    """
    return 0.0 - log(1.0 - u)


def _ratio(r: float, coefficients: tuple[float, ...]) -> float:
    a7, a6, a5, a4, a3, a2, a1, a0, b7, b6, b5, b4, b3, b2, b1 = coefficients
    above = ((((((a7 * r + a6) * r + a5) * r + a4) * r + a3) * r + a2) * r + a1) * r + a0
    below = ((((((b7 * r + b6) * r + b5) * r + b4) * r + b3) * r + b2) * r + b1) * r + 1.0
    return above / below


_MIDDLE = (
    *(2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4),
    *(1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    *(5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4),
    *(5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1),
)
_SIDE = (
    *(7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0),
    *(3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    *(1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1),
    *(6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0),
)
_TAIL = (
    *(2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2),
    *(2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
    *(2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4),
    *(1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1),
)

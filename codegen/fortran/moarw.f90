! Procedures that emitted Fortran takes what it uses of. Each is elemental and ends before the next begins.
!
! exp: x = n ln2 + r with |r| <= ln2/2, e^r by a minimax polynomial (relative error 1.05e-7 and 3.7e-18), then n added to the exponent. -inf and all
! whose result is subnormal give 0, overflow gives inf, NaN stays NaN. `shiftl`, not `ishft`: a shift of unknown sign is not vectorised.
module moarw
  use, intrinsic :: iso_c_binding, only: c_float, c_double, c_int32_t, c_int64_t
  implicit none
contains

  pure elemental function moarw_exp_f32(x) result(y)
    real(c_float), intent(in) :: x
    real(c_float) :: y, c, shifted, n, r, p
    c = merge(-87.33654_c_float, x, x < -87.33654_c_float)
    c = merge(88.72283_c_float, c, c > 88.72283_c_float)
    shifted = c * 1.44269504_c_float + 12582912.0_c_float
    n = shifted - 12582912.0_c_float
    r = (c - n * 0.693359375_c_float) + n * 2.12194440e-4_c_float
    p = transfer(int(z'3C083128', c_int32_t), 0.0_c_float)
    p = p * r + transfer(int(z'3D2B9532', c_int32_t), 0.0_c_float)
    p = p * r + transfer(int(z'3E2AABD8', c_int32_t), 0.0_c_float)
    p = p * r + transfer(int(z'3EFFFEFE', c_int32_t), 0.0_c_float)
    p = p * (r * r) + r + 1.0_c_float
    y = transfer(transfer(p, 0_c_int32_t) + shiftl(transfer(shifted, 0_c_int32_t), 23), 0.0_c_float)
    y = merge(0.0_c_float, y, x < -87.33654_c_float)
    y = merge(transfer(int(z'7F800000', c_int32_t), 0.0_c_float), y, x > 88.72283_c_float)
    y = merge(x, y, x /= x)
  end function moarw_exp_f32

  pure elemental function moarw_exp_f64(x) result(y)
    real(c_double), intent(in) :: x
    real(c_double) :: y, c, shifted, n, r, p
    c = merge(-708.396418532264_c_double, x, x < -708.396418532264_c_double)
    c = merge(709.782712893384_c_double, c, c > 709.782712893384_c_double)
    shifted = c * 1.4426950408889634_c_double + 6755399441055744.0_c_double
    n = shifted - 6755399441055744.0_c_double
    r = (c - n * 6.93147180369123816490e-01_c_double) - n * 1.90821492927058770002e-10_c_double
    p = transfer(int(z'3E5AD7F3EE5D2F80', c_int64_t), 0.0_c_double)
    p = p * r + transfer(int(z'3E928AD9B8648615', c_int64_t), 0.0_c_double)
    p = p * r + transfer(int(z'3EC71DF25B30D420', c_int64_t), 0.0_c_double)
    p = p * r + transfer(int(z'3EFA01999E26209F', c_int64_t), 0.0_c_double)
    p = p * r + transfer(int(z'3F2A01A012A0F35C', c_int64_t), 0.0_c_double)
    p = p * r + transfer(int(z'3F56C16C18438B11', c_int64_t), 0.0_c_double)
    p = p * r + transfer(int(z'3F81111111127D0E', c_int64_t), 0.0_c_double)
    p = p * r + transfer(int(z'3FA555555555083E', c_int64_t), 0.0_c_double)
    p = p * r + transfer(int(z'3FC55555555554F9', c_int64_t), 0.0_c_double)
    p = p * r + transfer(int(z'3FE000000000000A', c_int64_t), 0.0_c_double)
    p = p * (r * r) + r + 1.0_c_double
    y = transfer(transfer(p, 0_c_int64_t) + shiftl(transfer(shifted, 0_c_int64_t), 52), 0.0_c_double)
    y = merge(0.0_c_double, y, x < -708.396418532264_c_double)
    y = merge(transfer(int(z'7FF0000000000000', c_int64_t), 0.0_c_double), y, x > 709.782712893384_c_double)
    y = merge(x, y, x /= x)
  end function moarw_exp_f64

  ! max and min propagate NaN
  pure elemental function moarw_max_f32(a, b) result(y)
    real(c_float), intent(in) :: a, b
    real(c_float) :: y
    y = merge(b, a, b > a .or. b /= b)
  end function moarw_max_f32

  pure elemental function moarw_min_f32(a, b) result(y)
    real(c_float), intent(in) :: a, b
    real(c_float) :: y
    y = merge(b, a, b < a .or. b /= b)
  end function moarw_min_f32

  pure elemental function moarw_sign_f32(a) result(y)
    real(c_float), intent(in) :: a
    real(c_float) :: y
    y = merge(a, merge(1.0_c_float, 0.0_c_float, a > 0) - merge(1.0_c_float, 0.0_c_float, a < 0), a /= a)
  end function moarw_sign_f32

  ! aint keeps what no integer type holds
  pure elemental function moarw_floor_f32(a) result(y)
    real(c_float), intent(in) :: a
    real(c_float) :: y
    y = aint(a)
    y = y - merge(1.0_c_float, 0.0_c_float, y > a)
  end function moarw_floor_f32

  pure elemental function moarw_ceil_f32(a) result(y)
    real(c_float), intent(in) :: a
    real(c_float) :: y
    y = aint(a)
    y = y + merge(1.0_c_float, 0.0_c_float, y < a)
  end function moarw_ceil_f32

  pure elemental function moarw_fdiv_f32(a, b) result(y)
    real(c_float), intent(in) :: a, b
    real(c_float) :: y
    y = aint(a / b)
    y = y - merge(1.0_c_float, 0.0_c_float, y > a / b)
  end function moarw_fdiv_f32

  pure elemental function moarw_fmod_f32(a, b) result(y)
    real(c_float), intent(in) :: a, b
    real(c_float) :: y
    y = mod(a, b)
    y = merge(y + b, y, (y < 0 .and. b > 0) .or. (y > 0 .and. b < 0))
  end function moarw_fmod_f32

  pure elemental function moarw_max_f64(a, b) result(y)
    real(c_double), intent(in) :: a, b
    real(c_double) :: y
    y = merge(b, a, b > a .or. b /= b)
  end function moarw_max_f64

  pure elemental function moarw_min_f64(a, b) result(y)
    real(c_double), intent(in) :: a, b
    real(c_double) :: y
    y = merge(b, a, b < a .or. b /= b)
  end function moarw_min_f64

  pure elemental function moarw_sign_f64(a) result(y)
    real(c_double), intent(in) :: a
    real(c_double) :: y
    y = merge(a, merge(1.0_c_double, 0.0_c_double, a > 0) - merge(1.0_c_double, 0.0_c_double, a < 0), a /= a)
  end function moarw_sign_f64

  pure elemental function moarw_floor_f64(a) result(y)
    real(c_double), intent(in) :: a
    real(c_double) :: y
    y = aint(a)
    y = y - merge(1.0_c_double, 0.0_c_double, y > a)
  end function moarw_floor_f64

  pure elemental function moarw_ceil_f64(a) result(y)
    real(c_double), intent(in) :: a
    real(c_double) :: y
    y = aint(a)
    y = y + merge(1.0_c_double, 0.0_c_double, y < a)
  end function moarw_ceil_f64

  pure elemental function moarw_fdiv_f64(a, b) result(y)
    real(c_double), intent(in) :: a, b
    real(c_double) :: y
    y = aint(a / b)
    y = y - merge(1.0_c_double, 0.0_c_double, y > a / b)
  end function moarw_fdiv_f64

  pure elemental function moarw_fmod_f64(a, b) result(y)
    real(c_double), intent(in) :: a, b
    real(c_double) :: y
    y = mod(a, b)
    y = merge(y + b, y, (y < 0 .and. b > 0) .or. (y > 0 .and. b < 0))
  end function moarw_fmod_f64

  ! floor division and its remainder: a == b*fdiv(a, b) + fmod(a, b), 0 <= fmod(a, b) < b for b > 0; division of an integer by 0 gives 0
  pure elemental function moarw_fdiv_i64(a, b) result(y)
    integer(c_int64_t), intent(in) :: a, b
    integer(c_int64_t) :: y
    if (b == 0) then
      y = 0
    else if (b == -1) then
      y = -a
    else
      y = (a - modulo(a, b)) / b
    end if
  end function moarw_fdiv_i64

  pure elemental function moarw_fmod_i64(a, b) result(y)
    integer(c_int64_t), intent(in) :: a, b
    integer(c_int64_t) :: y
    if (b == 0 .or. b == -1) then
      y = 0
    else
      y = modulo(a, b)
    end if
  end function moarw_fmod_i64

  pure elemental function moarw_sign_i64(a) result(y)
    integer(c_int64_t), intent(in) :: a
    integer(c_int64_t) :: y
    y = merge(1_c_int64_t, 0_c_int64_t, a > 0) - merge(1_c_int64_t, 0_c_int64_t, a < 0)
  end function moarw_sign_i64

  pure elemental function moarw_pow_i64(a, b) result(y)
    integer(c_int64_t), intent(in) :: a, b
    integer(c_int64_t) :: y
    if (b >= 0) then
      y = a**b
    else if (a == 1) then
      y = 1
    else if (a == -1) then
      y = merge(-1_c_int64_t, 1_c_int64_t, mod(b, 2_c_int64_t) /= 0)
    else
      y = 0
    end if
  end function moarw_pow_i64
end module moarw

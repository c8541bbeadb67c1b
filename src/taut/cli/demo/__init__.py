"""What ``taut demo`` trains and shows."""

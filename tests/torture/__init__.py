"""`outlast torture` on real engines, and on engines that are wrong on purpose."""

import unittest

from textstats import mean, median, spread


class MeanTest(unittest.TestCase):
    def test_mean(self):
        self.assertEqual(mean([1, 2, 6]), 3.0)

    def test_mean_of_nothing(self):
        self.assertEqual(mean([]), 0.0)


class MedianTest(unittest.TestCase):
    def test_odd_count(self):
        self.assertEqual(median([9, 1, 4]), 4.0)

    def test_even_count(self):
        self.assertEqual(median([1, 2, 3, 10]), 2.5)


class SpreadTest(unittest.TestCase):
    def test_spread(self):
        self.assertEqual(spread([3, 8, 5]), 5.0)
        self.assertEqual(spread([]), 0.0)

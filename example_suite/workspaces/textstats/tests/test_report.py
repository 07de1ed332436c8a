import unittest

from textstats import summary, words


class WordsTest(unittest.TestCase):
    def test_words(self):
        self.assertEqual(words("Don't panic, 42 times!"), ["don't", "panic", "times"])


class SummaryTest(unittest.TestCase):
    def test_summary(self):
        expected = {"words": 3, "distinct": 3, "mean_length": 3.67, "median_length": 3.0}
        self.assertEqual(summary("one two three"), expected)

    def test_empty_text(self):
        self.assertEqual(summary(""), {"words": 0, "distinct": 0, "mean_length": 0.0, "median_length": 0.0})

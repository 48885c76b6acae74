"""How good an answer is: pure functions of answers and truths."""

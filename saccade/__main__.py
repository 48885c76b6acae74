"""`python -m saccade`, and `torchrun -m saccade` on many devices."""

from saccade.cli import main

if __name__ == "__main__":
    main()

"""`python -m rewards`, for launchers that take a module: `accelerate launch -m rewards train CONFIG`."""

from rewards.cli import main

main()

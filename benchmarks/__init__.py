"""Side by side with the peers: ``python -m benchmarks`` from the root of the repository.

Install the peers with ``pip install -e '.[peers]'``; a peer that is missing is reported as not installed.
"""

"""Short programs to read, copy and change; `docs/spark-examples.md` shows how to start them."""

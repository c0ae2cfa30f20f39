"""Short programs to read, copy and change; `docs/spark-job.md`, "Programs to copy", shows how to start them."""

"""`python -m kafka_pubsub`: the command line."""

from kafka_pubsub.cli.main import main

if __name__ == "__main__":
    main()

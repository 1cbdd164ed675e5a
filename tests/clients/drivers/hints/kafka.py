"""As much of kafka-python as the client uses: the messages are the lines of standard input. What is committed is printed."""

import sys
from types import SimpleNamespace


class KafkaConsumer:
    def __init__(self, topic, group_id, enable_auto_commit):
        assert topic and group_id and not enable_auto_commit

    def __iter__(self):
        for line in sys.stdin:
            self.message = line.strip()
            yield SimpleNamespace(value=self.message.encode())

    def commit(self):
        print(self.message, flush=True)

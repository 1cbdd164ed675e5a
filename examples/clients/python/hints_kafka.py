"""Kafka's messages as hints: each is an order's id."""

import os
import time
from urllib.parse import quote

import requests
from kafka import KafkaConsumer

closer, token = os.environ["CLOSER_URL"], {"Authorization": "Bearer " + os.environ["CLOSER_TOKEN"]}
consumer = KafkaConsumer("order-timeouts", group_id="order-closer", enable_auto_commit=False)
for message in consumer:
    url = f"{closer}/orders/{quote(message.value.decode(), safe='')}/close"
    # Asked too much; or paused, away, held by a payment: there was no look yet.
    while (answer := requests.post(url, headers=token, timeout=30)).status_code in (429, 503):
        time.sleep(int(answer.headers.get("Retry-After", 1)))
    # Also a look at an order that is paid, not due, unknown. Without one the message stays, and this ends with the reason.
    if "outcome" not in answer.json():
        raise SystemExit(f"{url}: {answer.status_code} {answer.text}")
    consumer.commit()

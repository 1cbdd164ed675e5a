"""Hears of closed orders by webhook, with Flask and psycopg."""

import base64
import hashlib
import hmac
import os
import time

import psycopg
from flask import Flask, request

secret = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))
app = Flask(__name__)


@app.post("/hooks/orders")
def order_closed():
    # The signature is over the very bytes that came.
    if not is_genuine(request.headers, request.get_data()):
        return "", 401
    take(request.get_json(force=True))
    return "", 204


def is_genuine(headers, body):
    """Whether it is signed with our secret, and was so within the last five minutes."""
    event_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not timestamp.isdecimal() or abs(time.time() - int(timestamp)) > 300:
        return False
    signed = f"{event_id}.{timestamp}.".encode() + body
    expected = base64.b64encode(hmac.digest(secret, signed, hashlib.sha256))
    given = headers.get("webhook-signature", "").encode().split(b" ")
    return any(hmac.compare_digest(signature.removeprefix(b"v1,"), expected) for signature in given)


def take(event):
    """The work and the event's id in one transaction: when the event comes again, nothing is done twice."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as db:
        seen = db.execute("INSERT INTO seen (id) VALUES (%s) ON CONFLICT DO NOTHING", [event["id"]])
        if seen.rowcount == 1:
            # What takes long is only noted here, and done later: order-closer waits for the answer.
            db.execute("INSERT INTO mails (order_no) VALUES (%s)", [event["data"]["order_id"]])
    # Leaving the block commits; an error rolls back, Flask answers 500, and the event comes again.


if __name__ == "__main__":
    app.run(port=int(os.environ["PORT"]))

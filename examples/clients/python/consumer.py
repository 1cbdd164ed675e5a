"""Reads of closed orders from the stream, with redis-py and psycopg. Start as many as you like, each with a name of its own."""

import logging
import os
import time

import psycopg
from redis import Redis
from redis.exceptions import RedisError, ResponseError

STREAM, GROUP, CONSUMER = "orders:closed", "mailer", os.environ["CONSUMER"]
# An entry that a consumer has had for so long without acknowledging it is given to another.
ABANDONED_MS = int(os.environ.get("ABANDONED_MS", 60_000))

log = logging.getLogger(__name__)
# The time limit has to be longer than a blocking read.
redis = Redis.from_url(os.environ["REDIS_URL"], decode_responses=True, socket_timeout=5)


def run():
    while True:
        try:
            make_group()
            _, claimed, *_ = redis.xautoclaim(STREAM, GROUP, CONSUMER, ABANDONED_MS, "0", count=100)
            take_all(claimed)
            for _, entries in redis.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=100, block=1_000):
                take_all(entries)
        except (RedisError, psycopg.Error) as error:
            # What was not acknowledged comes again.
            log.warning("once more in a second: %s", error)
            time.sleep(1)


def make_group():
    """Each time, because a Redis that comes back empty has none. From "0": what is there already, too."""
    try:
        redis.xgroup_create(STREAM, GROUP, "0", mkstream=True)
    except ResponseError as error:
        if not str(error).startswith("BUSYGROUP"):
            raise


def take_all(entries):
    for entry_id, event in entries:
        take(event)
        # After the commit: who dies in between finds the event's id next time.
        redis.xack(STREAM, GROUP, entry_id)


def take(event):
    """The work and the event's id in one transaction: when the event comes again, nothing is done twice."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as db:
        seen = db.execute("INSERT INTO seen (id) VALUES (%s) ON CONFLICT DO NOTHING", [event["id"]])
        if seen.rowcount == 1:
            db.execute("INSERT INTO mails (order_no) VALUES (%s)", [event["order_id"]])


if __name__ == "__main__":
    run()

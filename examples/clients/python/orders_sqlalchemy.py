"""An order service's part, with SQLAlchemy, PyMySQL and redis-py."""

import logging
import os
from datetime import timezone

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from sqlalchemy import create_engine, text

log = logging.getLogger(__name__)
db = create_engine(os.environ["DATABASE_URL"], pool_pre_ping=True)
# With its defaults redis-py would keep a checkout waiting while Redis is away.
redis = Redis.from_url(
    os.environ["REDIS_URL"], socket_timeout=0.5, socket_connect_timeout=0.5, retry=Retry(NoBackoff(), 0)
)


def create(order_no, deadline):
    """deadline: a datetime with a time zone, cut to milliseconds, which is what a key has."""
    # The transaction commits at the end of the block; the key is written behind it.
    with db.begin() as transaction:
        insert = text("INSERT INTO orders (order_no, status, expires_at) VALUES (:order_no, 0, :deadline)")
        transaction.execute(insert, {"order_no": order_no, "deadline": in_utc(deadline)})
    write_key(order_no, deadline)


def pay(order_no):
    """False: not paid by this call. Read the status, then refuse or refund."""
    with db.begin() as transaction:
        update = text("UPDATE orders SET status = 1 WHERE order_no = :order_no AND status = 0 AND expires_at > UTC_TIMESTAMP(6)")
        paid = transaction.execute(update, {"order_no": order_no}).rowcount == 1
    if paid:
        delete_key(order_no)
    return paid


def extend(order_no, deadline):
    """False: there is no such unpaid order any more."""
    with db.begin() as transaction:
        update = text("UPDATE orders SET expires_at = :deadline WHERE order_no = :order_no AND status = 0")
        extended = transaction.execute(update, {"order_no": order_no, "deadline": in_utc(deadline)}).rowcount == 1
    if extended:
        write_key(order_no, deadline)
    return extended


def cancel(order_no):
    """False: it was paid or closed before."""
    with db.begin() as transaction:
        update = text("UPDATE orders SET status = 4 WHERE order_no = :order_no AND status = 0")
        cancelled = transaction.execute(update, {"order_no": order_no}).rowcount == 1
        # What close.sql gives back, give back here, in the same transaction.
    if cancelled:
        delete_key(order_no)
    return cancelled


def in_utc(deadline):
    """PyMySQL drops the zone and writes the wall clock, so that has to be UTC's."""
    return deadline.astimezone(timezone.utc).replace(tzinfo=None)


def write_key(order_no, deadline):
    if_there(redis.set, f"order_{order_no}", "", pxat=round(deadline.timestamp() * 1000))


def delete_key(order_no):
    if_there(redis.delete, f"order_{order_no}")


def if_there(command, *arguments, **options):
    """The order closes by its row, so a checkout goes on without Redis."""
    try:
        command(*arguments, **options)
    except RedisError as error:
        log.warning("Redis is away; the order's row is enough: %s", error)

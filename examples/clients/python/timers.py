"""A reminder ten minutes before an order's deadline, with psycopg: registered, moved and cancelled with the order."""

import json
import os
from datetime import datetime, timedelta, timezone

import psycopg


def transaction():
    # Leaving the block commits; an error rolls back.
    return psycopg.connect(os.environ["DATABASE_URL"])


def create(order_no, deadline):
    """deadline: a datetime with a time zone."""
    with transaction() as tx:
        tx.execute("INSERT INTO orders (order_no, status, expires_at) VALUES (%s, 0, %s)", [order_no, deadline])
        remind(tx, order_no, deadline)


def extend(order_no, deadline):
    """False: there is no such unpaid order any more."""
    with transaction() as tx:
        update = "UPDATE orders SET expires_at = %s WHERE order_no = %s AND status = 0"
        extended = tx.execute(update, [deadline, order_no]).rowcount == 1
        if extended:
            remind(tx, order_no, deadline)
    return extended


def pay(order_no):
    """False: not paid by this call."""
    with transaction() as tx:
        paid = tx.execute("UPDATE orders SET status = 1 WHERE order_no = %s AND status = 0", [order_no]).rowcount == 1
        if paid:
            cancel = "DELETE FROM order_closer_timers WHERE kind = 'reminder' AND key = %s AND state = 'armed'"
            tx.execute(cancel, [str(order_no)])
    return paid


def remind(tx, order_no, deadline):
    """One that is there is moved. The order's row is locked, so the last one to be registered is the right one."""
    # Whole microseconds; a float would be off by some.
    due_at = (deadline - timedelta(minutes=10) - datetime.fromtimestamp(0, timezone.utc)) // timedelta(microseconds=1)
    tx.execute(
        """INSERT INTO order_closer_timers (kind, key, due_at, target, data) VALUES ('reminder', %s, %s, 'reminders', %s)
           ON CONFLICT (kind, key) DO UPDATE SET state = 'armed', due_at = excluded.due_at""",
        [str(order_no), due_at, json.dumps({"order": order_no})],
    )

"""An order service's part, with Django and redis-py."""

import logging

from django.conf import settings
from django.db import models, transaction
from django.db.models.functions import Now
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

log = logging.getLogger(__name__)
# With its defaults redis-py would keep a checkout waiting while Redis is away.
redis = Redis.from_url(
    settings.REDIS_URL, socket_timeout=0.5, socket_connect_timeout=0.5, retry=Retry(NoBackoff(), 0)
)


class Order(models.Model):
    order_no = models.BigIntegerField(primary_key=True)
    status = models.IntegerField(default=0)
    expires_at = models.DateTimeField()

    class Meta:
        app_label = "shop"
        db_table = "orders"
        managed = False


def create(order_no, deadline):
    """deadline: a datetime with a time zone, cut to milliseconds, which is what a key has."""
    with transaction.atomic():
        Order.objects.create(order_no=order_no, expires_at=deadline)
        # Called after the outermost transaction's commit, and not at all if that is rolled back.
        transaction.on_commit(lambda: write_key(order_no, deadline))


def pay(order_no):
    """False: not paid by this call. Read the status, then refuse or refund."""
    with transaction.atomic():
        paid = Order.objects.filter(order_no=order_no, status=0, expires_at__gt=Now()).update(status=1) == 1
        if paid:
            transaction.on_commit(lambda: delete_key(order_no))
    return paid


def extend(order_no, deadline):
    """False: there is no such unpaid order any more."""
    with transaction.atomic():
        extended = Order.objects.filter(order_no=order_no, status=0).update(expires_at=deadline) == 1
        if extended:
            transaction.on_commit(lambda: write_key(order_no, deadline))
    return extended


def cancel(order_no):
    """False: it was paid or closed before."""
    with transaction.atomic():
        cancelled = Order.objects.filter(order_no=order_no, status=0).update(status=4) == 1
        if cancelled:
            # What close.sql gives back, give back here, in the same transaction.
            transaction.on_commit(lambda: delete_key(order_no))
    return cancelled


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

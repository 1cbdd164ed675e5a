"""Calls what a client defines, as told on standard input: a verb, an order, and mostly a deadline in milliseconds."""

import importlib.util
import os
import sys
from datetime import datetime, timedelta, timezone
from urllib.parse import urlsplit

path = sys.argv[1]
if "django" in path:
    import django
    from django.conf import settings

    url = urlsplit(os.environ["DATABASE_URL"])
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": url.path[1:], "USER": url.username}
    database |= {"HOST": url.hostname, "PORT": url.port}
    settings.configure(DATABASES={"default": database}, REDIS_URL=os.environ["REDIS_URL"], USE_TZ=True)
    django.setup()

spec = importlib.util.spec_from_file_location("client", path)
client = importlib.util.module_from_spec(spec)
spec.loader.exec_module(client)
local = timezone(timedelta(hours=8))
for line in sys.stdin:
    verb, order, *millis = line.split()
    deadline = [datetime.fromtimestamp(int(number) // 1000, local) + timedelta(milliseconds=int(number) % 1000) for number in millis]
    try:
        answer = getattr(client, verb)(int(order), *deadline)
        print("=", "done" if answer is None else str(answer).lower(), flush=True)
    except Exception as error:
        print("= failed:", repr(error).replace("\n", " | "), flush=True)

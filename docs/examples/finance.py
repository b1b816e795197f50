#!/usr/bin/env python3
"""A finance service for Dibs in plain Python 3: no packages, Redis commands over a socket, books in SQLite.

    python3 finance.py --redis redis://127.0.0.1:6379 --books books.db            # run it; Ctrl-C or SIGTERM ends it
    python3 finance.py --books books.db --report                                  # what is in the books, and holes in seq
    python3 finance.py --books new.db --rebuild http://127.0.0.1:8080             # lost books, from the ledgers; DIBS_TOKEN is a viewer's

It reads the claim streams in a consumer group of its own and credits what packets gave, once each, however often an event
comes. docs/finance.md tells why it does what it does, in this order:

    XREADGROUP  ->  one transaction of the books  ->  XADD of what can never be credited to the parked stream  ->  XACK
"""
import argparse, datetime, json, os, random, signal, socket, sqlite3, ssl, sys, time, urllib.error, urllib.parse, urllib.request

BATCH = 500            # entries of a read, and of a transaction
BLOCK_MS = 500         # how long a read waits for entries
SILENT_MS = 5000       # entries of a consumer that was silent for so long are taken over
AMOUNT_MAX = 10**15 - 1

SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (       -- one row a credit: the key is the event's id, so a second one finds the first
  id TEXT PRIMARY KEY, user_id TEXT NOT NULL, campaign_id TEXT NOT NULL, packet_id TEXT, seq INTEGER,
  amount INTEGER NOT NULL, currency TEXT NOT NULL, claimed_at TEXT NOT NULL,
  shard INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID; -- of the campaign: seq counts in it
CREATE TABLE IF NOT EXISTS accounts (      -- moves with the entries, in the same transaction
  user_id TEXT, currency TEXT, amount INTEGER NOT NULL, entries INTEGER NOT NULL, PRIMARY KEY (user_id, currency)) WITHOUT ROWID;
"""


class RedisError(Exception):
    """What Redis has answered with an error: NOGROUP, BUSYGROUP and so on."""


class Redis:
    """As much of Redis' protocol (RESP 2) as is needed."""

    def __init__(self, url):
        at = urllib.parse.urlsplit(url)
        if at.scheme not in ("redis", "rediss") or not at.hostname or at.query:
            sys.exit("--redis must be redis://[user:password@]host:port[/db], or rediss:// for TLS, without options")
        self.socket = socket.create_connection((at.hostname, at.port or 6379), timeout=5)
        if at.scheme == "rediss":  # SSL_CERT_FILE names a private authority
            self.socket = ssl.create_default_context().wrap_socket(self.socket, server_hostname=at.hostname)
        self.file = self.socket.makefile("rb")
        if at.password:
            self.call("AUTH", *[urllib.parse.unquote(word) for word in (at.username, at.password) if word])
        if at.path.strip("/"):
            self.call("SELECT", at.path.strip("/"))

    def call(self, *words):
        parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
        answer = self.read()
        if isinstance(answer, RedisError):
            raise answer
        return answer

    def read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("Redis hung up")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return RedisError(rest.decode())
        if kind == b":":
            return int(rest)
        size = int(rest)
        if size < 0:
            return None
        if kind == b"$":
            text = self.file.read(size + 2)
            if len(text) < size + 2:
                raise ConnectionError("Redis hung up")
            return text[:-2]
        return [self.read() for _ in range(size)]


class Never(Exception):
    """An event that no retry will credit, and why."""


def credit_of(event):
    """The row of entries that an event asks for, or None when it asks for none: a coupon, or a type of tomorrow."""
    amount, user, currency = event.get("amount"), event.get("user_id"), event.get("currency", "")
    if event.get("type") == "claim.accepted":
        if amount is None and "packet_id" not in event:
            return None
        if "packet_id" not in event:
            raise Never("an amount and no packet_id")
    elif event.get("type") == "campaign.closed":  # what was left over returns to the sender
        if not amount or not user:
            return None
    else:
        return None
    if type(amount) is not int or not 0 <= amount <= AMOUNT_MAX:  # minor units: cents, never a float
        raise Never("amount %r" % (amount,))
    if not isinstance(currency, str) or len(currency) not in (0, 3):  # a campaign need not name one
        raise Never("currency %r" % (currency,))
    if not isinstance(user, str) or not user or not isinstance(event.get("id"), str):
        raise Never("user_id %r of event %r" % (user, event.get("id")))
    return (event["id"], user, event["campaign_id"], event.get("packet_id"), event.get("seq"), amount, currency, event["at"],
            event.get("shard", 0))


class Books:
    def __init__(self, path):
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")  # a commit is on the disk before it is acked
        self.db.executescript(SCHEMA)
        if "shard" not in [column[1] for column in self.db.execute("PRAGMA table_info(entries)")]:  # books of an earlier version
            self.db.execute("ALTER TABLE entries ADD COLUMN shard INTEGER NOT NULL DEFAULT 0")

    def credit(self, payload):
        """Credits an event once. Runs inside a transaction. Raises Never."""
        try:
            event = json.loads(payload)
            if event.get("type") in ("claims.given_up", "claims.dropped"):
                return self.give_up(event)
            row = credit_of(event)
        except (ValueError, TypeError, KeyError, AttributeError) as broken:
            raise Never("not an event: %r" % (broken,)) from broken
        if row is None:
            return
        there = self.db.execute("SELECT * FROM entries WHERE id = ?", row[:1]).fetchone()
        if there is not None:
            if not there[1] or str(there[3]).startswith("given_up:"):
                return  # it was given up
            if there[1:4] + there[5:7] != row[1:4] + row[5:7]:
                raise Never("another entry has this id: %r" % (there,))
            return  # it came before
        self.db.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        self.db.execute(
            "INSERT INTO accounts VALUES (?, ?, ?, 1) ON CONFLICT (user_id, currency) DO UPDATE"
            " SET amount = amount + excluded.amount, entries = entries + 1", (row[1], row[6], row[5]))

    def give_up(self, event):
        """Takes back what claims credited that were given up, by their ids or places, once each. Runs inside a transaction."""
        campaign, ids = event["campaign_id"], set(event.get("ids") or [])
        for first, last in event.get("seqs") or []:  # claims that Redis lost: only these books know their ids
            ids |= {row[0] for row in self.db.execute(
                "SELECT id FROM entries WHERE campaign_id = ? AND shard = ? AND seq BETWEEN ? AND ?",
                (campaign, event.get("shard", 0), first, last))}
        for id in sorted(ids):
            credit = self.db.execute("SELECT user_id, amount, currency FROM entries WHERE id = ?", (id,)).fetchone()
            if credit is None:  # its event comes later, finds this entry and credits no one
                self.db.execute("INSERT INTO entries VALUES (?, '', ?, NULL, NULL, 0, '', ?, 0)", (id, campaign, event["at"]))
            elif credit[0] and not self.db.execute("SELECT 1 FROM entries WHERE id = ?", ("given_up:" + id,)).fetchone():
                user, amount, currency = credit
                self.db.execute("INSERT INTO entries VALUES (?, ?, ?, NULL, NULL, ?, ?, ?, 0)",
                                ("given_up:" + id, user, campaign, -amount, currency, event["at"]))
                self.db.execute("UPDATE entries SET seq = NULL, packet_id = 'given_up:' || id WHERE id = ?", (id,))
                self.db.execute("UPDATE accounts SET amount = amount - ?, entries = entries + 1 WHERE user_id = ? AND currency = ?",
                                (amount, user, currency))

    def report(self):
        """Sums, and the campaigns, or their shards as campaign#shard, whose seq has holes: every claim of a packet has an entry."""
        sums = self.db.execute("SELECT currency, SUM(amount), SUM(entries) FROM accounts GROUP BY currency").fetchall()
        holes = self.db.execute(
            "SELECT campaign_id || CASE WHEN shard > 0 THEN '#' || shard ELSE '' END, MAX(seq) - COUNT(seq)"
            " FROM entries WHERE seq IS NOT NULL GROUP BY campaign_id, shard HAVING MAX(seq) <> COUNT(seq)").fetchall()
        return {"sums": sums, "missing": dict(holes)}


class Service:
    def __init__(self, args):
        self.args, self.books, self.redis, self.stopping = args, Books(args.books), None, False
        self.streams = []

    def run(self):
        wait = 0.1
        while not self.stopping:
            try:
                self.connect()
                while not self.stopping:
                    self.round()
                    wait = 0.1
            except (OSError, RedisError) as trouble:  # Redis is away, or has lost the group: join again, read again
                print("finance.py:", trouble, file=sys.stderr)
                time.sleep(wait * random.uniform(0.5, 1.5))
                wait = min(2 * wait, 10)

    def connect(self):
        self.redis = Redis(self.args.redis)
        self.streams = ["dibs:{p%d}:claims" % n for n in range(self.partitions())]
        for stream in self.streams:
            try:  # from the first entry on: what was there before the group is ours, too
                self.redis.call("XGROUP", "CREATE", stream, self.args.group, "0", "MKSTREAM")
            except RedisError as answer:
                if not str(answer).startswith("BUSYGROUP"):
                    raise
        waiting = sum(self.redis.call("XLEN", stream) for stream in self.streams)
        print("finance.py: reading %d claim streams as %s of group %s; they hold %d entries" %
              (len(self.streams), self.args.name, self.args.group, waiting), file=sys.stderr)
        for stream in self.streams:  # what was delivered to us and not acked, before the last crash
            last = "0"
            while entries := self.read([stream], last):
                last = entries[-1][1]
                self.settle(entries)
        self.take_over_at = 0

    def partitions(self):
        """How many claim streams there are. Who reads fewer misses the events of the others, and no report shows that."""
        known = self.redis.call("HGET", "dibs:info", "partitions")
        if known is None and self.args.partitions is None:
            raise RedisError("dibs:info is not in Redis: Dibs' syncer puts it there; or name --partitions")
        partitions = self.args.partitions or int(known)
        if known is not None and partitions != int(known):
            sys.exit("finance.py: --partitions is %d, and Dibs has %d claim streams" % (partitions, int(known)))
        return partitions

    def round(self):
        if time.monotonic() >= self.take_over_at:
            for stream in self.streams:
                self.take_over(stream)
            self.take_over_at = time.monotonic() + SILENT_MS / 2000
        self.settle(self.read(self.streams, ">"))

    def read(self, streams, after):
        answer = self.redis.call("XREADGROUP", "GROUP", self.args.group, self.args.name, "COUNT", BATCH, "BLOCK", BLOCK_MS,
                                 "STREAMS", *streams, *[after] * len(streams))
        return [(stream.decode(), entry, fields) for stream, entries in answer or [] for entry, fields in entries]

    def take_over(self, stream):
        """Entries that another consumer of the group took and did not ack, because it died."""
        cursor = b"0-0"
        while True:
            answer = self.redis.call("XAUTOCLAIM", stream, self.args.group, self.args.name, SILENT_MS, cursor, "COUNT", BATCH)
            cursor = answer[0]
            self.settle([(stream, entry, fields) for entry, fields in answer[1]])
            if len(answer) > 2 and answer[2]:
                print("finance.py: LOST, trimmed before they were acked:", stream, answer[2], file=sys.stderr)
            if cursor == b"0-0":
                return

    def settle(self, entries):
        """Books first, then parks, then acks: a crash in between has events come again, and never lets one slip."""
        never, db = [], self.books.db
        db.execute("BEGIN IMMEDIATE")
        try:
            for stream, entry, fields in entries:
                if fields is None:
                    print("finance.py: LOST, trimmed before it was acked:", stream, entry, file=sys.stderr)
                    continue
                named = dict(zip(fields[::2], fields[1::2]))
                try:
                    self.books.credit(named.get(b"payload", b""))
                except Never as reason:
                    never.append((stream, entry, fields, str(reason)))
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise
        for stream, entry, fields, reason in never:
            self.park(stream, entry, fields, reason)
        for stream in self.streams:
            acked = [entry for of, entry, _ in entries if of == stream]
            if acked:
                self.redis.call("XACK", stream, self.args.group, *acked)

    def park(self, stream, entry, fields, reason):
        now = datetime.datetime.now(datetime.timezone.utc)
        print("finance.py: parked", entry.decode(), reason, file=sys.stderr)
        self.redis.call("XADD", stream + ":parked:" + self.args.group, "*", "_dibs_id", entry, "_dibs_group", self.args.group,
                        "_dibs_reason", reason[:1000], "_dibs_tries", 1,
                        "_dibs_at", now.strftime("%Y-%m-%dT%H:%M:%S.") + "%03dZ" % (now.microsecond // 1000), *fields)


def ask(url, path, **query):
    """An answer of Dibs' API."""
    request = urllib.request.Request(url.rstrip("/") + path + "?" + urllib.parse.urlencode(query))
    request.add_header("Authorization", "Bearer " + os.environ.get("DIBS_TOKEN", ""))
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refused:
        sys.exit("finance.py: %s: %s" % (path, refused.read().decode()))


def rebuild(args):
    """Books from the ledgers of all campaigns. The stream may be read at the same time: what comes twice is credited once."""
    books, cursor = Books(args.books), ""
    while cursor is not None:
        page = ask(args.rebuild, "/v1/campaigns", limit=1000, cursor=cursor)
        for campaign in page["campaigns"]:
            path, after = "/v1/campaigns/%s/ledger" % urllib.parse.quote(campaign["id"]), ""
            while (ledger := ask(args.rebuild, path, limit=1000, after=after))["events"]:
                books.db.execute("BEGIN IMMEDIATE")
                for event in ledger["events"]:
                    books.credit(json.dumps(event))
                books.db.execute("COMMIT")
                after = ledger["next"]
        cursor = page.get("next_cursor")


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--redis", default="redis://127.0.0.1:6379", help="redis:// or rediss://[user:password@]host:port[/db]")
    flags.add_argument("--partitions", type=int, help="DIBS_PARTITIONS; default: what dibs:info in Redis says")
    flags.add_argument("--group", default="my-books", help="consumer group of its own (not that of `dibs finance`); creating it registers it")
    flags.add_argument("--name", default="worker-1", help="of this process in the group; keep it over restarts")
    flags.add_argument("--books", default="books.db", help="SQLite file")
    flags.add_argument("--report", action="store_true", help="print what is in the books and end")
    flags.add_argument("--rebuild", metavar="URL", help="book all that happened, by the API at this address, and end")
    args = flags.parse_args()
    if args.rebuild:
        return rebuild(args)
    if args.report:
        print(json.dumps(Books(args.books).report()))
        return
    service = Service(args)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: setattr(service, "stopping", True))
    service.run()


if __name__ == "__main__":
    main()

"""A receiver of Dibs' webhooks: it verifies the signature, handles each event once, and answers.

    WEBHOOK_SECRET=whsec_... python3 receiver.py 127.0.0.1:9000
"""
import base64
import hashlib
import hmac
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

TOLERANCE = 5 * 60  # seconds; an older message may be one that someone recorded
BODY_MAX = 1 << 20

KEY = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))
seen = set()  # keep the ids in your database, in the transaction that handles the event
lock = Lock()


def verified(headers, body):
    """Whether one of the signatures is of this body, by the secret."""
    message_id, sent = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not sent.isdecimal() or abs(time.time() - int(sent)) > TOLERANCE:
        return False
    want = hmac.new(KEY, f"{message_id}.{sent}.".encode() + body, hashlib.sha256).digest()
    want = "v1," + base64.b64encode(want).decode()
    signatures = headers.get("webhook-signature", "").split()
    return any(hmac.compare_digest(want.encode(), s.encode()) for s in signatures)


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(min(length, BODY_MAX))
        if length > BODY_MAX or not verified(self.headers, body):
            self.answer(401)
            return
        delivery = json.loads(body)
        with lock:
            if self.headers["webhook-id"] not in seen:  # the same event may come again
                if "gap" in delivery:
                    print("missing before the next:", delivery["gap"]["events"], flush=True)
                print(delivery["type"], delivery["data"]["campaign_id"], delivery["data"].get("seq", 0), flush=True)
                seen.add(self.headers["webhook-id"])
        self.answer(204)  # only now: any other answer has the event come again

    def answer(self, status):
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


host, port = sys.argv[1].rsplit(":", 1)
server = ThreadingHTTPServer((host, int(port)), Receiver)
print("listening on", "%s:%d" % server.server_address, flush=True)
server.serve_forever()

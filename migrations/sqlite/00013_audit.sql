-- +goose Up
-- Who changed what, written in the transaction that made the change.
CREATE TABLE IF NOT EXISTS audit_log (
  id          TEXT     NOT NULL PRIMARY KEY, -- UUIDv7: sorts by time
  at          DATETIME NOT NULL,             -- UTC
  actor       TEXT     NOT NULL,             -- name of the token, sub of the JWT, or cli: and the user of the command
  request_id  TEXT     NOT NULL,             -- X-Request-Id; empty for a command
  action      TEXT     NOT NULL,             -- such as campaign.changed
  campaign_id TEXT     NOT NULL DEFAULT '',  -- empty when it is about none
  "before"    TEXT     NULL,                 -- JSON: what was there, as far as it changed
  "after"     TEXT     NULL                  -- JSON: what is there now, as far as it changed
);
CREATE INDEX IF NOT EXISTS audit_of_campaign ON audit_log (campaign_id, id);

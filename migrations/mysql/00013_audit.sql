-- +goose Up
-- Who changed what, written in the transaction that made the change.
CREATE TABLE IF NOT EXISTS audit_log (
  id          VARCHAR(36)  NOT NULL COMMENT 'UUIDv7: sorts by time',
  at          DATETIME(3)  NOT NULL COMMENT 'UTC',
  actor       VARCHAR(128) NOT NULL COMMENT 'name of the token, sub of the JWT, or cli: and the user of the command; empty for a token that is nobody''s',
  request_id  VARCHAR(64)  NOT NULL COMMENT 'X-Request-Id; empty for a command',
  action      VARCHAR(64)  NOT NULL COMMENT 'such as campaign.changed',
  campaign_id VARCHAR(64)  NOT NULL DEFAULT '' COMMENT 'empty when it is about none',
  `before`    JSON         NULL COMMENT 'what was there, as far as it changed',
  `after`     JSON         NULL COMMENT 'what is there now, as far as it changed',
  PRIMARY KEY (id),
  KEY audit_of_campaign (campaign_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a change that somebody made; nothing works by it, and only a DBA deletes from it';

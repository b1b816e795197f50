-- +goose Up
-- Events that wait for an endpoint that does not take them, and those that were given up.
CREATE TABLE IF NOT EXISTS webhook_events (
  endpoint    VARCHAR(64)  NOT NULL COMMENT 'its name in the endpoints file',
  campaign_id VARCHAR(64)  NOT NULL,
  no          BIGINT       NOT NULL COMMENT 'the order of delivery within endpoint and campaign; microseconds since 1970 when the event was read',
  event_id    VARCHAR(64)  NOT NULL COMMENT 'the webhook-id of its deliveries',
  type        VARCHAR(32)  NOT NULL COMMENT 'of the event',
  at          DATETIME(3)  NOT NULL COMMENT 'UTC, of the event',
  payload     LONGBLOB     NOT NULL COMMENT 'the event as it stands in the claim stream, JSON',
  created_at  DATETIME(3)  NOT NULL COMMENT 'UTC',
  parked_at   DATETIME(3)  NULL COMMENT 'UTC, when it was given up; NULL: it is still tried',
  reason      VARCHAR(500) NOT NULL DEFAULT '' COMMENT 'why it was given up',
  announced   INT          NOT NULL DEFAULT 0 COMMENT '1: a later delivery has told the endpoint that it is missing',
  PRIMARY KEY (endpoint, campaign_id, no),
  UNIQUE KEY webhook_events_once (endpoint, event_id),
  KEY webhook_events_parked (parked_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row an event that an endpoint has not taken';

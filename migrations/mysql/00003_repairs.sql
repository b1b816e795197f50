-- +goose Up
-- What repairs changed, for people who ask later.
CREATE TABLE IF NOT EXISTS repairs (
  id           VARCHAR(64)  NOT NULL COMMENT 'UUIDv7: sorts by time',
  campaign_id  VARCHAR(64)  NOT NULL,
  what         VARCHAR(64)  NOT NULL COMMENT 'which part of the books was put right: claims, campaigns or redis',
  value_before VARCHAR(500) NOT NULL COMMENT 'what was there',
  value_after  VARCHAR(500) NOT NULL COMMENT 'what is there now, and by what evidence',
  at           DATETIME(3)  NOT NULL COMMENT 'UTC',
  PRIMARY KEY (id),
  KEY repairs_of_campaign (campaign_id, at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a change that a repair made';

-- +goose Up
-- The consumer groups whose unread events are kept. The claim streams have the groups themselves; this is the list by which the syncer
-- creates a group again that Redis lost.
CREATE TABLE IF NOT EXISTS consumer_groups (
  name          VARCHAR(255) NOT NULL COMMENT 'as in XGROUP CREATE',
  registered_at DATETIME(3)  NOT NULL COMMENT 'UTC',
  PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a registered consumer group: nothing that it has not acknowledged is trimmed';

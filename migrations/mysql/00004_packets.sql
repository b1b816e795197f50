-- +goose Up
-- Packets get their place in the campaign, by which Redis is told of them, and the requests that brought them are kept, so that one
-- that is sent again is known. No program wrote packets before this file.
SET @add_position = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'packets'
  AND column_name = 'position') > 0, 'DO 0',
  'ALTER TABLE packets
    ADD COLUMN position BIGINT NOT NULL COMMENT ''from 1, without gaps, per campaign; Redis is told of packets in this order'',
    ADD UNIQUE KEY packets_place (campaign_id, position)');
PREPARE add_position FROM @add_position;
EXECUTE add_position;
DEALLOCATE PREPARE add_position;

CREATE TABLE IF NOT EXISTS packet_batches (
  campaign_id    VARCHAR(64) NOT NULL,
  first_position BIGINT      NOT NULL COMMENT 'of its packets; the others follow without gaps',
  packets        BIGINT      NOT NULL COMMENT 'how many',
  amount         BIGINT      NOT NULL COMMENT 'their sum, minor units of the campaign''s currency',
  release_at     DATETIME(3) NULL COMMENT 'UTC; NULL is at once',
  request_key    VARCHAR(64) NOT NULL COMMENT 'digest of the client''s idempotency key, or of the list; else made for this request',
  digest         VARCHAR(64) NOT NULL COMMENT 'SHA-256 of what was asked for, to know a repeated request',
  created_at     DATETIME(3) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (campaign_id, first_position),
  UNIQUE KEY packet_batches_request (campaign_id, request_key),
  KEY packet_batches_digest (campaign_id, digest)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a request that added packets';

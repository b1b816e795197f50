-- +goose Up
-- Claims of closed campaigns may be moved away.
ALTER TABLE campaigns ADD COLUMN archived_claims BIGINT NOT NULL DEFAULT 0; -- claims whose rows were moved away; synced_seq counts them still
ALTER TABLE campaigns ADD COLUMN archived_units BIGINT NOT NULL DEFAULT 0; -- units of those that were live; claimed counts them still
ALTER TABLE campaigns ADD COLUMN archived_released BIGINT NOT NULL DEFAULT 0; -- how many of them were released or expired; released_claims counts them still

CREATE TABLE IF NOT EXISTS claims_archive (
  id             VARCHAR(64)  NOT NULL, -- as in claims, like all columns but the last
  campaign_id    VARCHAR(64)  NOT NULL,
  shard          INT          NOT NULL,
  seq            BIGINT       NOT NULL,
  user_id        VARCHAR(128) NOT NULL,
  quantity       BIGINT       NOT NULL,
  status         VARCHAR(16)  NOT NULL,
  key_digest     VARCHAR(64)  NOT NULL,
  epoch          BIGINT       NOT NULL,
  packet_id      VARCHAR(64)  NULL,
  amount         BIGINT       NULL,
  order_id       VARCHAR(128) NULL,
  claimed_at     DATETIME     NOT NULL,
  synced_at      DATETIME     NOT NULL,
  resolved_at    DATETIME     NULL,
  release_reason VARCHAR(200) NOT NULL,
  archived_at    DATETIME     NOT NULL, -- UTC
  PRIMARY KEY (campaign_id, shard, seq)
);

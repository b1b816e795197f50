-- +goose Up
-- Packets of a campaign of several shards are dealt to them: to which, and by which of its moves.
ALTER TABLE packets ADD COLUMN shard INT NOT NULL DEFAULT 0; -- that it was dealt to, from 1; 0 is in the reserve, or a campaign of one shard
ALTER TABLE packets ADD COLUMN move_no BIGINT NOT NULL DEFAULT 0; -- of stock_moves, that dealt it; 0 is none
CREATE INDEX IF NOT EXISTS packets_dealt ON packets (campaign_id, shard, release_at, position);
CREATE INDEX IF NOT EXISTS packet_batches_release ON packet_batches (campaign_id, release_at, packets);

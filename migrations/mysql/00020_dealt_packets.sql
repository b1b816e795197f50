-- +goose Up
-- Packets of a campaign of several shards are dealt to them: to which, and by which of its moves.
SET @add_shard = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'packets'
  AND column_name = 'shard') > 0, 'DO 0',
  'ALTER TABLE packets
    ADD COLUMN shard INT NOT NULL DEFAULT 0 COMMENT ''that it was dealt to, from 1; 0 is in the reserve, or a campaign of one shard'',
    ADD COLUMN move_no BIGINT NOT NULL DEFAULT 0 COMMENT ''of stock_moves, that dealt it; 0 is none'',
    ADD KEY packets_dealt (campaign_id, shard, release_at, position)');
PREPARE add_shard FROM @add_shard;
EXECUTE add_shard;
DEALLOCATE PREPARE add_shard;

SET @add_release = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'packet_batches'
  AND index_name = 'packet_batches_release') > 0, 'DO 0',
  'ALTER TABLE packet_batches ADD KEY packet_batches_release (campaign_id, release_at, packets)');
PREPARE add_release FROM @add_release;
EXECUTE add_release;
DEALLOCATE PREPARE add_release;

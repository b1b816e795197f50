-- +goose Up
-- What the syncer asks each second, without a look at every campaign: which were evicted, which are to end, which have several shards.
SET @add_idle = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'campaigns'
  AND index_name = 'campaigns_of_residency') > 0, 'DO 0',
  'ALTER TABLE campaigns
    ADD KEY campaigns_of_residency (residency, id),
    ADD KEY campaigns_to_end (status, closed_told_at),
    ADD KEY campaigns_of_shards (shards)');
PREPARE add_idle FROM @add_idle;
EXECUTE add_idle;
DEALLOCATE PREPARE add_idle;

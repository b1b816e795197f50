-- +goose Up
-- After a restore shards must begin with what they had, whatever the total is by then.
ALTER TABLE definitions ADD COLUMN dealt BIGINT NULL COMMENT 'units that the shards shared at first, before all changes that their streams have. NULL: one shard, packets, or not known', ALGORITHM=INSTANT;

-- +goose Up
-- After a restore shards must begin with what they had, whatever the total is by then.
ALTER TABLE definitions ADD COLUMN dealt BIGINT NULL;

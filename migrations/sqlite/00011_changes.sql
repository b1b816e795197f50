-- +goose Up
-- How many definitions a campaign had. version numbers them by time, and what is told of versions goes by it; people read this count.
ALTER TABLE campaigns ADD COLUMN changes BIGINT NOT NULL DEFAULT 1; -- definitions that there were, counted from 1

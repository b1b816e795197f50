-- +goose Up
-- A note of a campaign, the sample of docs/architecture.md.
ALTER TABLE definitions ADD COLUMN note VARCHAR(500) NOT NULL DEFAULT '' COMMENT 'for people', ALGORITHM=INSTANT;

-- +goose Up
-- A note of a campaign, the sample of docs/architecture.md.
ALTER TABLE definitions ADD COLUMN note TEXT NOT NULL DEFAULT '';

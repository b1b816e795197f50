-- +goose Up
-- Which lots are to be loaded again is asked every two seconds.
CREATE INDEX IF NOT EXISTS lots_reload ON lots (reload_upto);

-- +goose Up
-- As for lots, see 00102.
ALTER TABLE stock_moves ADD KEY stock_moves_reload (reload_upto), ALGORITHM=INPLACE, LOCK=NONE;

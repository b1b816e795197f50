-- +goose Up
-- Which lots are to be loaded again is asked every two seconds.
ALTER TABLE lots ADD KEY lots_reload (reload_upto), ALGORITHM=INPLACE, LOCK=NONE;

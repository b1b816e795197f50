-- move.lua takes the next step of a shard in the moves of units between it and its campaign's reserve, in one step. The move with the
-- number that the shard has taken last answers what it answered then.
--
-- total is what the shard has on loan. moves is the number of the last move, ups counts what made units free: who finds ups unchanged
-- knows that no more units became free meanwhile.
--
-- KEYS[1] state  hash  definition and counters of the shard
--
-- ARGV[1] epoch  the load that MySQL knows
-- ARGV[2] no     the number of the move
-- ARGV[3] kind   grant: want units more; recall: as many of want units as are free less
-- ARGV[4] want   units
--
-- Reply {0, amount: units that went, again: 1 for a move that was known} · {1} absent: the shard is not here
--   {2, which} damaged: the key of that number; nothing was changed
--   {3, moves} the shard has taken a move with a higher number, or lacks one with a lower one; untouched
--   {4} another load is here, or one that takes no claims; untouched
local state_key, no, want = KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[4])

local state_type = redis.call('TYPE', state_key)['ok']
if state_type == 'none' then return {1} end
if state_type ~= 'hash' then return {2, 1} end
local held = redis.call('HMGET', state_key, 'epoch', 'total', 'taken', 'moves', 'move_amount', 'ups', 'status')
for i = 1, 6 do
  if not held[i] or not string.find(held[i], '^%d+$') or #held[i] > 15 then return {2, 1} end
end
if tonumber(held[1]) ~= tonumber(ARGV[1]) or held[7] == 'fenced' or held[7] == 'loading' then return {4} end
local total, taken, moves = tonumber(held[2]), tonumber(held[3]), tonumber(held[4])
if moves == no then return {0, tonumber(held[5]), 1} end
if moves ~= no - 1 then return {3, moves} end

local amount, ups = want, tonumber(held[6])
if ARGV[3] == 'recall' then
  amount = math.min(want, math.max(0, total - taken))
  total = total - amount
else
  total, ups = total + amount, ups + 1
end
redis.call('HSET', state_key, 'total', total, 'moves', no, 'move_amount', amount, 'ups', ups)
return {0, amount, 0}

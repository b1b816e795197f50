-- move.lua takes the next step of a shard in the moves of units between it and its campaign's reserve, in one step. The move with the
-- number, kind and want that the shard has taken last answers what it answered then.
--
-- total is what the shard has on loan. moves is the number of the last move, ups counts what made units free: who finds ups unchanged
-- knows that no more units became free meanwhile.
--
-- Packets are units with names. A grant adds its packets to the end of their list. A recall takes packets from the end of the last list,
-- and keeps which in the field moved until the next move. The first write is an HSET, which Redis refuses whole.
--
-- KEYS[1] state  hash  definition and counters of the shard
-- KEYS[2] waves  zset  of a packet campaign only, see push.lua
-- KEYS[3] list   list  of a packet campaign only: the packets of the time of release below
--
-- ARGV[1] epoch       the load that MySQL knows
-- ARGV[2] no          the number of the move
-- ARGV[3] kind        grant: want units more; recall: as many of want units as are free less
-- ARGV[4] want        units
-- ARGV[5] release_ms  of a grant of packets only: their time of release
-- ARGV[6..]           of a grant of packets only: amount:id of each
--
-- Reply {0, amount: units that went, again: 1 for a move that was known, the packets of a recall: amount:id of each, joined by " "}
--   {1} absent: the shard is not here
--   {2, which} damaged: the key of that number; nothing was changed
--   {3, moves} the shard has taken a move with a higher number, or lacks one with a lower one; untouched
--   {4} another load is here, or one that takes no claims; untouched
--   {5} the shard has taken another move with that number; untouched
local state_key, waves_key, list_key, no, want = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[2]), tonumber(ARGV[4])
local FIRST_PACKET = 6

local function type_of(key) return redis.call('TYPE', key)['ok'] end
local state_type = type_of(state_key)
if state_type == 'none' then return {1} end
if state_type ~= 'hash' then return {2, 1} end
local held = redis.call('HMGET', state_key, 'epoch', 'total', 'taken', 'moves', 'move_amount', 'ups', 'status', 'kind', 'moved', 'move_of')
for i = 1, 6 do
  if not held[i] or not string.find(held[i], '^%d+$') or #held[i] > 15 then return {2, 1} end
end
if (held[8] == 'packet') ~= (waves_key ~= nil) then return {2, 1} end
if tonumber(held[1]) ~= tonumber(ARGV[1]) or held[7] == 'fenced' or held[7] == 'loading' then return {4} end
local total, taken, moves = tonumber(held[2]), tonumber(held[3]), tonumber(held[4])
local move_of = ARGV[3] .. ' ' .. ARGV[4]
if moves == no and held[10] ~= move_of then return {5} end
if moves == no then return {0, tonumber(held[5]), 1, held[9] or ''} end
if moves ~= no - 1 then return {3, moves} end
if waves_key then
  local waves_type, list_type = type_of(waves_key), type_of(list_key)
  if waves_type ~= 'zset' and waves_type ~= 'none' then return {2, 2} end
  if list_type ~= 'list' and list_type ~= 'none' then return {2, 3} end
end

local amount, ups, moved, lists, ends = want, tonumber(held[6]), {}, {}, {}

-- find_last finds the last packets, which are to go: ends[i] of them are at the end of lists[i].
local function find_last()
  for _, list in ipairs(redis.call('ZREVRANGE', waves_key, 0, -1)) do
    if #moved == amount then return true end
    local found = redis.pcall('LRANGE', list, #moved - amount, -1)
    if found.err or #found == 0 then return false end
    lists[#lists + 1], ends[#ends + 1] = list, #found
    for i = #found, 1, -1 do moved[#moved + 1] = found[i] end
  end
  return #moved == amount
end

if ARGV[3] == 'recall' then
  amount = math.min(want, math.max(0, total - taken))
  total = total - amount
  if waves_key and not find_last() then return {2, 2} end -- packets were lost
else
  total, ups = total + amount, ups + 1
  if waves_key and #ARGV - FIRST_PACKET + 1 ~= want then return {2, 3} end
end
redis.call('HSET', state_key, 'total', total, 'moves', no, 'move_amount', amount, 'move_of', move_of, 'ups', ups)
if not waves_key then return {0, amount, 0, ''} end

moved = table.concat(moved, ' ')
redis.call('HSET', state_key, 'moved', moved)
if ARGV[3] == 'grant' then
  redis.call('RPUSH', list_key, unpack(ARGV, FIRST_PACKET))
  redis.call('ZADD', waves_key, ARGV[5], list_key)
end
for i, list in ipairs(lists) do
  redis.call('LTRIM', list, 0, -1 - ends[i])
  if redis.call('EXISTS', list) == 0 then redis.call('ZREM', waves_key, list) end
end
return {0, amount, 0, moved}

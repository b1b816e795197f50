-- debit.lua takes free units out of a lot for a peer, a lot of the same campaign, in one step. They are in flight until credit.lua brings
-- them to the peer. The lot counts in out:<peer> the units that it ever debited for each peer.
--
-- A lot may have lost debits that its peers have the units of. So the caller names what every peer was credited from here, the floors, and
-- out:<peer> is raised to these first. Units that the lot lacks then are owed: total is 0 and owed is above 0 until they are credited.
--
-- Packets are units with names. They go from the front of the lists of those that are released to the end of the list out, which has
-- every packet that was ever debited for the peer. The first write is an XADD, which Redis refuses whole, see claim.lua.
--
-- KEYS[1] state   hash    definition and counters of the lot
-- KEYS[2] stream  stream  the claim stream of the partition
-- KEYS[3] waves   zset    of a packet campaign only, see push.lua
-- KEYS[4] out     list    of a packet campaign only: "release_ms:amount:id" of each packet debited for the peer
--
-- ARGV[1] epoch     the load that the caller saw
-- ARGV[2] peer      the number of the lot that the units are for
-- ARGV[3] seen      out:<peer> as the caller saw it
-- ARGV[4] want      units; 0 only raises floors
-- ARGV[5] event_id  of the event
-- ARGV[6] at        when, as JSON shows it
-- ARGV[7] now_ms    milliseconds since 1970; empty: this server's clock
-- ARGV[8..] pairs of the number of a peer and the units that it was credited from here
--
-- Reply {0, out:<peer>, units that were debited}
--   {1} absent: the lot is not here
--   {2, which} damaged: the key of that number; nothing was changed
--   {3, out:<peer>} others moved units in the meantime; untouched
--   {4} another load is here, or one that is not to be trusted; untouched
--   {5, peer} a peer has packets that this lot does not know to have debited: it lost the debit; the lot is fenced
local state_key, stream_key, waves_key, out_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local epoch, peer, seen, want, FIRST_FLOOR = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), 8

local function type_of(key) return redis.call('TYPE', key)['ok'] end
local state_type = type_of(state_key)
if state_type == 'none' then return {1} end
if state_type ~= 'hash' then return {2, 1} end
local names = {'epoch', 'total', 'taken', 'tseq', 'owed', 'out:' .. peer}
for i = FIRST_FLOOR, #ARGV, 2 do names[#names + 1] = 'out:' .. ARGV[i] end
local held = redis.call('HMGET', state_key, unpack(names))
for i = 1, #names do
  if i > 4 and not held[i] then held[i] = '0' end
  if not held[i] or not string.find(held[i], '^%d+$') or #held[i] > 15 then return {2, 1} end
  held[i] = tonumber(held[i])
end
local kind, status = unpack(redis.call('HMGET', state_key, 'kind', 'status'))
if (kind == 'packet') ~= (waves_key ~= nil) then return {2, 1} end
if held[1] ~= epoch or status == 'fenced' or status == 'loading' then return {4} end
local stream_type = type_of(stream_key)
if stream_type ~= 'stream' and stream_type ~= 'none' then return {2, 2} end
if held[6] ~= seen then return {3, held[6]} end

-- What the lot has is total - owed. One of the two is 0. moves has what is to be told: {peer, units, out:<peer>} of each that changes.
local has, tseq, out, moves = held[2] - held[5], held[4], held[6], {}
for i = FIRST_FLOOR, #ARGV, 2 do
  local floor, known = tonumber(ARGV[i + 1]), held[7 + (i - FIRST_FLOOR) / 2]
  if floor > known then
    if waves_key then
      redis.call('HSET', state_key, 'status', 'fenced')
      return {5, tonumber(ARGV[i])}
    end
    has = has - (floor - known)
    if ARGV[i] == peer then out = floor else moves[#moves + 1] = {ARGV[i], floor - known, floor} end
  end
end

local now_ms = tonumber(ARGV[7])
if not now_ms then
  local time = redis.call('TIME')
  now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local units = math.min(want, math.max(0, has - held[3]))
local packets, ids, lists, ends = {}, {}, {}, {}
if waves_key then
  local out_type = type_of(out_key)
  if out_type ~= 'list' and out_type ~= 'none' then return {2, 4} end
  if redis.call('LLEN', out_key) ~= held[6] then return {2, 4} end
  local waves = redis.pcall('ZRANGEBYSCORE', waves_key, '-inf', now_ms, 'WITHSCORES')
  if waves.err then return {2, 3} end
  for i = 1, #waves, 2 do
    if #packets == units then break end
    local list = waves[i]
    local found = redis.pcall('LRANGE', list, 0, units - #packets - 1)
    if found.err or #found == 0 then return {2, 3} end
    for _, packet in ipairs(found) do
      packets[#packets + 1] = waves[i + 1] .. ':' .. packet
      ids[#packets] = '"' .. string.match(packet, '^%d+:(.*)$') .. '"'
    end
    lists[#lists + 1], ends[#ends + 1] = list, #found
  end
  units = #packets -- those that are not released stay
end
out = out + units
if out > held[6] then moves[#moves + 1] = {peer, out - held[6], out} end
local owed = math.max(0, -has)
if not moves[1] then
  redis.call('HSET', state_key, 'tseq', tseq) -- who waits for the disk waits for what its connection wrote
  return {0, out, 0}
end

-- Writes. The first may be refused, and then nothing was written. After it nothing can fail.
local campaign_id, number = string.match(state_key, ':c:([^#]*)#(%d+)$')
local changed = {'total', math.max(0, has - units), 'owed', owed, 'last_ms', now_ms}
for _, move in ipairs(moves) do
  tseq = tseq + 1
  local id = move[1] == peer and ARGV[5] or ARGV[5] .. ':' .. move[1]
  redis.call('XADD', stream_key, '*', '_watermill_message_uuid', id, 'metadata', '', 'payload', '{"v":1,"type":"units.debited","id":"' .. id ..
    '","campaign_id":"' .. campaign_id .. '","shard":' .. number .. ',"peer":' .. move[1] .. ',"quantity":' .. string.format('%.0f', move[2]) ..
    ',"cumulative":' .. string.format('%.0f', move[3]) .. ',"tseq":' .. string.format('%.0f', tseq) .. ',"epoch":' .. ARGV[1] ..
    (move[1] == peer and ids[1] and ',"ids":[' .. table.concat(ids, ',') .. ']' or '') .. ',"at":"' .. ARGV[6] .. '"}')
  changed[#changed + 1] = 'out:' .. move[1]
  changed[#changed + 1] = string.format('%.0f', move[3])
end
redis.call('HSET', state_key, 'tseq', tseq, unpack(changed))
if packets[1] then redis.call('RPUSH', out_key, unpack(packets)) end
for i, list in ipairs(lists) do
  redis.call('LTRIM', list, ends[i], -1)
  if redis.call('EXISTS', list) == 0 then redis.call('ZREM', waves_key, list) end
end
return {0, out, units}

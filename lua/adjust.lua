-- adjust.lua writes a definition to a lot and to the claim stream, in one step.
-- It also appends an event for each line that the change crosses.
-- Claims stay as they are. A lot that is away gets the definition when it is
-- loaded. The first write is an XADD, which Redis refuses whole, see claim.lua.
--
-- KEYS[1] state   hash    definition and counters of the campaign
-- KEYS[2] stream  stream  the claim stream of the partition
-- KEYS[3] signals hash    of the partition, see away.lua
--
-- ARGV[1]    version   of the definition; an older one changes nothing
-- ARGV[2]    event_id  derived from the version; the event's name follows it
-- ARGV[3]    at        the time in JSON
-- ARGV[4]    now_ms    milliseconds since 1970; empty: this server's clock
-- ARGV[5..12] pairs of a field of state that never changes and its value;
--             another value is damage
-- ARGV[13]   definition  of the campaign, as JSON
-- ARGV[14..] pairs of a field of state and its new value.
--            New limits count claims from now on. A pause later
--            than known_pause keeps the lot paused, see pause.lua
--
-- Reply {0} adjusted · {1} the lot is away: only the stream has it
--   {2, which} damaged: the key of that number
--   {3} this version or a newer one is here; this one was appended again
--   {4} later: it is being loaded; unchanged
local state_key, stream_key, signals_key = KEYS[1], KEYS[2], KEYS[3]
local version, FIXED, DEFINITION, FIRST_PAIR = tonumber(ARGV[1]), 5, 13, 14

local state_type = redis.call('TYPE', state_key)['ok']
local stream_type = redis.call('TYPE', stream_key)['ok']
if state_type ~= 'hash' and state_type ~= 'none' then return {2, 1} end
if stream_type ~= 'stream' and stream_type ~= 'none' then return {2, 2} end
local campaign_id, shard = string.match(state_key, ':c:([^#]*)#?(%d*)$')
local function append_change(epoch)
  redis.call('XADD', stream_key, '*', '_watermill_message_uuid', ARGV[2] .. ':changed', 'metadata', '', 'payload',
    '{"v":1,"type":"campaign.changed","id":"' .. ARGV[2] .. ':changed","campaign_id":"' .. campaign_id .. '"' ..
    (shard ~= '' and ',"shard":' .. shard or '') .. ',"epoch":' .. epoch .. ',"version":' .. ARGV[1] ..
    ',"definition":' .. ARGV[DEFINITION] .. ',"at":"' .. ARGV[3] .. '"}')
end
local here = redis.call('HMGET', state_key, 'token', 'generation')
if here[1] then return {4} end
if state_type == 'none' or here[2] ~= (redis.call('HGET', signals_key, 'generation') or '0') then
  append_change(0)
  return {1}
end

local function number(text)
  if text and #text <= 15 and string.find(text, '^%d+$') then return tonumber(text) end
end

local names = {'version', 'epoch', 'taken', 'seq', 'status', 'total', 'low_stock_at', 'limits', 'last_ms', 'pause'}
local counts = redis.call('HMGET', state_key, unpack(names))
for i = 1, 4 do
  if not number(counts[i]) then return {2, 1} end
end
local held = redis.call('HMGET', state_key, ARGV[FIXED], ARGV[FIXED + 2], ARGV[FIXED + 4], ARGV[FIXED + 6])
for i = 1, 4 do
  if held[i] ~= ARGV[FIXED - 1 + 2 * i] then return {2, 1} end
end
if version == tonumber(counts[1]) then append_change(counts[2]) end
if version <= tonumber(counts[1]) then return {3} end

local new = {}
for i = FIRST_PAIR, #ARGV, 2 do new[ARGV[i]] = ARGV[i + 1] end

-- A kept limit goes on counting. A new one counts claims after last_ms.
-- So last_ms is set with it.
local from_ms = '0'
local limits = {}
if counts[4] ~= '0' then
  local now_ms = tonumber(ARGV[4])
  local last_ms = number(counts[9]) or 0
  if not now_ms then
    local time = redis.call('TIME')
    now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  end
  from_ms = string.format('%.0f', math.max(now_ms, last_ms + 1))
end
local function key_of(limit) return (string.gsub(limit, '^(%l%d+):%d+:%d+:', '%1:')) end
local from = {}
for limit in string.gmatch(counts[8] or '', '[^;]+') do from[key_of(limit)] = string.match(limit, '^%l%d+:%d+:(%d+):') end
local last_ms
for limit in string.gmatch(new.limits, '[^;]+') do
  if not from[key_of(limit)] then last_ms = from_ms end
  limits[#limits + 1] = string.gsub(limit, '^(%l%d+:%d+:)%d+', '%1' .. (from[key_of(limit)] or from_ms))
end

-- A change crosses a line as a claim does. The remainder is above the
-- old line, and not above the new one. Damaged old fields cross
-- nothing; this script writes them again.
local crossed = {}
local left = 0
local taken, total, low = tonumber(counts[3]), number(counts[6]), number(counts[7])
if total and low and new.status ~= 'closed' then
  local before = math.max(0, total - taken)
  local new_low = number(new.low_stock_at) or 0
  left = math.max(0, (number(new.total) or total) - taken)
  if left <= new_low and new_low > 0 and (before > low or low == 0) then crossed[1] = 'low_stock' end
  if left == 0 and before > 0 then crossed[#crossed + 1] = 'sold_out' end
end

-- Writes. None after the first can fail.
append_change(counts[2])
for _, name in ipairs(crossed) do
  local id = ARGV[2] .. ':' .. name
  redis.call('XADD', stream_key, '*', '_watermill_message_uuid', id, 'metadata', '', 'payload',
    '{"v":1,"type":"campaign.' .. name .. '","id":"' .. id .. '","campaign_id":"' .. campaign_id ..
    '","remaining":' .. string.format('%.0f', left) ..
    (counts[4] ~= '0' and ',"seq":' .. counts[4] or '') .. ',"epoch":' .. counts[2] .. ',"at":"' .. ARGV[3] .. '"}')
end
redis.call('HSET', state_key, 'version', ARGV[1], unpack(ARGV, FIRST_PAIR))
redis.call('HSET', state_key, 'limits', table.concat(limits, ';'))
if counts[10] and counts[10] <= new.known_pause then
  redis.call('HDEL', state_key, 'pause')
elseif counts[10] and new.status == 'open' then
  redis.call('HSET', state_key, 'status', 'paused')
end
if last_ms and last_ms ~= '0' then redis.call('HSET', state_key, 'last_ms', last_ms) end
return {0}

-- Stormpetrel inside sbatch: two lines on the terminal of who submits, before the job is in the queue.
--
-- Install: put this file next to slurm.conf as cli_filter.lua, set CliFilterPlugins=cli_filter/lua in slurm.conf, and install
-- Debian's lua-socket (or LuaSocket of another system). It runs in the user's own sbatch, never in slurmctld.
--
-- It fails open: a service that is slow (150 ms), away or strange never keeps a job from being submitted. What is shown, and
-- whether anything is refused, the site decides ([submit] in site.toml). STORMPETREL_SUBMIT=off switches it off for a user.

local SOCKET = os.getenv("STORMPETREL_SOCKET") or "/run/stormpetrel/api.sock"
local LIMIT_S = 0.15

-- What the service answers: "silent", "show" or "refuse", and lines for people. Nothing where anything goes wrong.
local function ask(body)
	local has_socket, socket = pcall(require, "socket")
	local has_unix, unix = pcall(require, "socket.unix")
	if not has_socket or not has_unix then
		return nil
	end
	local give_up = socket.gettime() + LIMIT_S
	local function left()
		return math.max(give_up - socket.gettime(), 0.001)
	end
	-- LuaSocket 2 has one function, LuaSocket 3 a table of kinds.
	local connection = type(unix) == "table" and (unix.stream or unix.tcp or unix)() or unix()
	connection:settimeout(left(), "t")
	if not connection:connect(SOCKET) then
		connection:close()
		return nil
	end
	connection:settimeout(left(), "t")
	local sent = connection:send(
		"POST /api/v1/predict/submit HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
			.. "Content-Type: application/json\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body
	)
	local answer
	if sent then
		connection:settimeout(left(), "t")
		answer = connection:receive("*a")
	end
	connection:close()
	if not answer or not answer:match("^HTTP/1%.1 200 ") then
		return nil
	end
	return answer:match("\r\n\r\n(%l+)\n(.*)$")
end

local asks = true -- until the service has not answered: the components of a heterogeneous job wait for it once

local function judge(options, offset)
	if not asks or os.getenv("STORMPETREL_SUBMIT") == "off" or options["type"] ~= "sbatch" then
		return slurm.SUCCESS
	end
	-- Slurm itself writes the options as JSON, those of the script included: nothing of the job is ever put into a command.
	local verdict, lines = ask('{"options":' .. slurm.json_cli_options(options) .. "}")
	asks = verdict ~= nil
	if verdict ~= "show" and verdict ~= "refuse" then
		return slurm.SUCCESS
	end
	if offset > 0 then
		slurm.log_info("Component %d:", offset + 1)
	end
	for line in lines:gmatch("[^\n]+") do
		slurm.log_info("%s", line)
	end
	return verdict == "refuse" and slurm.ERROR or slurm.SUCCESS
end

function slurm_cli_setup_defaults(options, early_pass)
	return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, offset)
	local fine, result = pcall(judge, options, offset)
	return fine and result or slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
	return slurm.SUCCESS
end

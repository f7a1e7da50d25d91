local there, problem = pcall(dofile, "@FILE@")
if not there then
	local done = function() return slurm.SUCCESS end
	slurm_cli_setup_defaults, slurm_cli_post_submit = done, done
	function slurm_cli_pre_submit(options)
		local asked = tostring(options["gres"]) .. tostring(options["tres-per-task"])
		if not asked:match("mps") then return slurm.SUCCESS end
		slurm.log_error("packhorse: mps is not available: %s", problem)
		return slurm.ERROR
	end
end

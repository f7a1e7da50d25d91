local there, problem = pcall(dofile, "@FILE@")
if not there then
	local done = function() return slurm.SUCCESS end
	slurm_cli_setup_defaults, slurm_cli_post_submit = done, done
	function slurm_cli_pre_submit(options)
		if not tostring(options["gres"]):match("mps") then return slurm.SUCCESS end
		slurm.log_error("packhorse: mps is not available: %s", problem)
		return slurm.ERROR
	end
end

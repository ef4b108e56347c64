# Completion of `stormpetrel` for users in bash: commands, ids of the own jobs, files.
# Install: /usr/share/bash-completion/completions/stormpetrel, or `source` it.

_stormpetrel() {
	local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} second=${COMP_WORDS[2]}
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		COMPREPLY=($(compgen -W "alarms check digest jobs me tokens top waste why" -- "$word"))
	elif [[ $command == why && COMP_CWORD -eq 2 || $command == jobs && $second == show && COMP_CWORD -eq 3 ]]; then
		# The words of compgen -W are expanded: only numbers come out of --ids.
		COMPREPLY=($(compgen -W "$(stormpetrel jobs list --ids --limit 50 --timeout 1 2>/dev/null)" -- "$word"))
	elif ((COMP_CWORD == 2)); then
		case $command in
		alarms | jobs) COMPREPLY=($(compgen -W "list show" -- "$word")) ;;
		tokens) COMPREPLY=($(compgen -W "create list revoke" -- "$word")) ;;
		digest) COMPREPLY=($(compgen -W "on off" -- "$word")) ;;
		check) COMPREPLY=($(compgen -f -- "$word")) ;;
		esac
	elif [[ $command == check ]]; then
		COMPREPLY=($(compgen -f -- "$word"))
	fi
}
complete -F _stormpetrel stormpetrel
